//! The question, as one plan and as three pipelined trips.

use crate::world::{World, ZONES};
use anyhow::{Context, bail};
use remora_command_line::Connection;
use remora_resp::Value;

/// Couriers that the question is about.
pub const WANTED: usize = 5;
/// Commands that are sent together when the world is written.
const TOGETHER: usize = 500;

/// A row of the answer: a courier's name and phone, the zone's name and surge.
pub type Row = [String; 4];

/// A server, and how the question is asked there.
pub enum Way {
    /// `PLAN.RUN`.
    Plan(Connection),
    /// GEOSEARCH, then HMGET of the profiles, then HMGET of the zones.
    Trips(Connection),
}

impl Way {
    /// The connection.
    pub fn connection(&mut self) -> &mut Connection {
        match self {
            Self::Plan(connection) | Self::Trips(connection) => connection,
        }
    }

    /// Writes the couriers, their profiles and the zones.
    pub fn write(&mut self, world: &World) -> anyhow::Result<()> {
        let mut commands: Vec<Vec<String>> = Vec::new();
        let words = |line: String| line.split(' ').map(str::to_owned).collect();
        for zone in 0..ZONES {
            commands.push(words(format!("HSET zone:{zone} name Z{zone} surge {}", zone % 7)));
        }
        for (id, courier) in world.couriers.iter().enumerate() {
            let ((x, y), zone) = (courier.at, courier.zone);
            let profile = format!("HSET courier:{id} name N{id} phone +49-{id} zone zone:{zone}");
            commands.push(words(profile));
            let status = if courier.is_free { "free" } else { "busy" };
            match self {
                Self::Plan(_) => {
                    commands.push(words(format!("LINK.SET courier:{id} zone zone:{zone}")));
                    let fields = format!("FIELDS 1 status {status}");
                    commands
                        .push(words(format!("RTREE.ADD couriers {id} {x} {y} {x} {y} {fields}")));
                }
                // Its best form: a key of its own for the free ones.
                Self::Trips(_) => commands.push(words(format!("GEOADD {status} {x} {y} {id}"))),
            }
        }
        for some in commands.chunks(TOGETHER) {
            self.trip(some, |reply| match reply {
                Value::Error(text) => bail!("{}", String::from_utf8_lossy(text)),
                _ => Ok(()),
            })?;
        }
        Ok(())
    }

    /// Sends commands together and takes their replies: a round trip.
    fn trip<T>(
        &mut self,
        commands: &[Vec<String>],
        mut take: impl FnMut(&Value<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<T>> {
        let connection = self.connection();
        for command in commands {
            connection.push_header(command.len());
            command.iter().for_each(|word| connection.push_part(word.as_bytes()));
        }
        connection.flush()?;
        commands.iter().map(|_| take(&connection.reply()?)).collect()
    }

    /// Asks for the nearest free couriers of a place. The rows, and the requests that were sent.
    pub fn ask(&mut self, (x, y): (f64, f64)) -> anyhow::Result<(Vec<Row>, usize)> {
        let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        if let Self::Plan(_) = self {
            let plan = format!(
                "PLAN.RUN FROM NEAREST couriers {x} {y} {WANTED} WHERE status = free KEY courier: \
                 GET name phone FOLLOW zone GET name surge"
            );
            let mut rows = self.trip(&[words(plan)], |reply| {
                texts_of_each(reply)?.into_iter().map(row).collect::<anyhow::Result<Vec<_>>>()
            })?;
            return Ok((rows.pop().unwrap_or_default(), 1));
        }
        let search =
            format!("GEOSEARCH free FROMLONLAT {x} {y} BYRADIUS 100 km ASC COUNT {WANTED}");
        let ids = self.trip(&[words(search)], texts)?.pop().unwrap_or_default();
        let of = |id: &String| words(format!("HMGET courier:{id} name phone zone"));
        let profiles = self.trip(&ids.iter().map(of).collect::<Vec<_>>(), texts)?;
        let of = |profile: &Vec<String>| words(format!("HMGET {} name surge", profile[2]));
        let zones = self.trip(&profiles.iter().map(of).collect::<Vec<_>>(), texts)?;
        let joined = profiles.into_iter().zip(zones).map(|(mut profile, zone)| {
            profile.truncate(2);
            profile.extend(zone);
            row(profile)
        });
        Ok((joined.collect::<anyhow::Result<_>>()?, 1 + 2 * ids.len()))
    }
}

fn row(columns: Vec<String>) -> anyhow::Result<Row> {
    columns.try_into().map_err(|columns| anyhow::anyhow!("a row of {columns:?}"))
}

fn items<'v, 'a>(reply: &'v Value<'a>) -> anyhow::Result<&'v [Value<'a>]> {
    match reply {
        Value::Array(items) => Ok(items),
        Value::Error(text) => bail!("the server says: {}", String::from_utf8_lossy(text)),
        other => bail!("unexpected reply: {other:?}"),
    }
}

fn texts(reply: &Value<'_>) -> anyhow::Result<Vec<String>> {
    let text = |item: &Value<'_>| match item {
        Value::Bulk(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        other => bail!("unexpected column: {other:?}"),
    };
    items(reply)?.iter().map(text).collect()
}

fn texts_of_each(reply: &Value<'_>) -> anyhow::Result<Vec<Vec<String>>> {
    items(reply)?.iter().map(texts).collect()
}

/// Whether the rows are the answer at a place: free couriers with their zones, as near as any.
pub fn check(world: &World, from: (f64, f64), rows: &[Row]) -> anyhow::Result<()> {
    let expected = world.nearest(from, WANTED);
    anyhow::ensure!(rows.len() == expected.len(), "{} rows of {}", rows.len(), expected.len());
    for ([name, phone, zone, surge], metres) in rows.iter().zip(expected) {
        let id: usize = name.trim_start_matches('N').parse().context("a courier's name")?;
        let courier = world.couriers.get(id).context("no such courier")?;
        let wanted =
            [format!("+49-{id}"), format!("Z{}", courier.zone), (courier.zone % 7).to_string()];
        let found = [phone.clone(), zone.clone(), surge.clone()];
        anyhow::ensure!(courier.is_free && found == wanted, "{name}: {found:?}");
        // Redis rounds positions to less than a metre.
        let differs = (world.metres(from, id) - metres).abs();
        anyhow::ensure!(differs < 2.0, "{name} is {differs} m farther than another one");
    }
    Ok(())
}
