//! The demo's map: one HTML file without script, which loads nothing.

use super::map::{Cost, Window};
use super::places::{Place, Places};
use super::table::grouped;
use remora_bench::Records;
use remora_client_core::Rect;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Dots of the world's map for each degree: places nearer to each other share one.
const DOTS_PER_DEGREE: f64 = 2.0;
/// Places of a window that show their names and inhabitants under the pointer.
const TOLD: usize = 50;
/// Names under a window.
const NAMED: usize = 3;
/// Edge of a window's map, in its own units.
const EDGE: f64 = 200.0;

const HEAD: &str = include_str!("map.html");

/// The whole page.
pub fn page(places: &Places, windows: &[Window<'_>]) -> anyhow::Result<String> {
    let mut page = String::from(HEAD);
    writeln!(
        page,
        "<p>{} places of the world lie as points in a tree in a server's memory. Each square is a \
         window that was searched in four ways. All of them found the same places.</p>",
        grouped(places.count() as f64)
    )?;
    world(&mut page, places, windows)?;
    page.push_str("<h2>The windows</h2>\n<div class=\"windows\">\n");
    for (number, window) in (1..).zip(windows) {
        inset(&mut page, number, window)?;
    }
    page.push_str("</div>\n");
    costs(&mut page, windows)?;
    page.push_str(FOOT);
    Ok(page)
}

const FOOT: &str = "<footer><p>Places: <a href=\"https://www.geonames.org/\">GeoNames</a>, licensed \
under <a href=\"https://creativecommons.org/licenses/by/4.0/\">CC BY 4.0</a>; those with fewer than 1,000 \
inhabitants were left out. Made by <code>remora demo --map</code>.</p></footer>\n</main>\n</body>\n</html>\n";

/// All places as dots, and the windows by number.
fn world(page: &mut String, places: &Places, windows: &[Window<'_>]) -> anyhow::Result<()> {
    page.push_str(
        "<figure>\n<svg class=\"world\" viewBox=\"0 5 360 142\" role=\"img\" \
         aria-labelledby=\"world-title world-text\">\n\
         <title id=\"world-title\">The places of the world</title>\n\
         <desc id=\"world-text\">A dot for every half degree in which people live, and six numbered \
         windows; the table below tells the same.</desc>\n<path class=\"dots\" d=\"",
    );
    let mut dots = BTreeSet::new();
    for place in places.all() {
        let Place { x, y, .. } = place?;
        let cell = |degrees: f64| (degrees * DOTS_PER_DEGREE) as u32;
        dots.insert((cell(90.0 - y), cell(x + 180.0)));
    }
    let mut last = None;
    for (row, column) in dots {
        let (x, y) = (f64::from(column) / DOTS_PER_DEGREE, f64::from(row) / DOTS_PER_DEGREE);
        match last {
            Some((known, from)) if known == row => write!(page, "m{} 0h0", x - from)?,
            _ => write!(page, "M{x} {y}h0")?,
        }
        last = Some((row, x));
    }
    page.push_str("\"/>\n");
    for (number, window) in (1..).zip(windows) {
        let Rect { min_x, max_x, min_y, max_y } = window.rect;
        writeln!(
            page,
            "<rect class=\"window\" x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\"/>\
             <text class=\"number\" x=\"{:.2}\" y=\"{:.2}\">{number}</text>",
            min_x + 180.0,
            90.0 - max_y,
            max_x - min_x,
            max_y - min_y,
            max_x + 181.0,
            91.0 - (min_y + max_y) / 2.0,
        )?;
    }
    page.push_str(
        "</svg>\n<figcaption>\
         <span class=\"key dot\"></span> where people live \
         <span class=\"key square\"></span> a window that was searched</figcaption>\n</figure>\n",
    );
    Ok(())
}

/// One window with the places found in it.
fn inset(page: &mut String, number: usize, window: &Window<'_>) -> anyhow::Result<()> {
    let Rect { min_x, max_x, min_y, max_y } = window.rect;
    let name = escaped(window.middle.name);
    write!(
        page,
        "<figure>\n<svg viewBox=\"0 0 {EDGE} {EDGE}\" role=\"img\" aria-labelledby=\"w{number}\">\n\
         <title id=\"w{number}\">Window {number}: {name} and around it</title>\n"
    )?;
    let across = |place: &Place<'_>| EDGE * (place.x - min_x) / (max_x - min_x);
    let down = |place: &Place<'_>| EDGE * (max_y - place.y) / (max_y - min_y);
    let (large, small) = window.found.split_at(window.found.len().min(TOLD));
    page.push_str("<path class=\"small\" d=\"");
    for place in small {
        write!(page, "M{:.1} {:.1}h0", across(place), down(place))?;
    }
    page.push_str("\"/>\n");
    for place in large {
        writeln!(
            page,
            "<circle class=\"found\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{:.1}\"><title>{}, {}</title></circle>",
            across(place),
            down(place),
            1.0 + (place.population as f64).sqrt() / 400.0,
            escaped(place.name),
            grouped(place.population as f64),
        )?;
    }
    let names: Vec<String> = window.found.iter().take(NAMED).map(|p| escaped(p.name)).collect();
    write!(
        page,
        "</svg>\n<figcaption><b>{number}. {name}</b>, {} to {}, {} to {}: {} places, the largest are \
         {}</figcaption>\n</figure>\n",
        degrees(min_x, 'E', 'W'),
        degrees(max_x, 'E', 'W'),
        degrees(min_y, 'N', 'S'),
        degrees(max_y, 'N', 'S'),
        grouped(window.found.len() as f64),
        names.join(", "),
    )?;
    Ok(())
}

/// The path that answered, and its cost.
fn costs(page: &mut String, windows: &[Window<'_>]) -> anyhow::Result<()> {
    page.push_str(
        "<h2>Who answered, and what it cost</h2>\n<div class=\"scrolled\"><table>\n\
         <caption>One search of each window by each way; times are those of the middle one of 51, \
         round trips and bytes are averages.</caption>\n<thead><tr>",
    );
    for column in
        ["Window", "Places", "Way", "Answered", "Time, us", "Round trips", "Bytes", "Nodes"]
    {
        write!(page, "<th scope=\"col\">{column}</th>")?;
    }
    page.push_str("</tr></thead>\n");
    for (number, window) in (1..).zip(windows) {
        page.push_str("<tbody>\n");
        for (index, Cost { way, via, p50_us, round_trips, bytes, nodes }) in
            window.costs.iter().enumerate()
        {
            page.push_str("<tr>");
            if index == 0 {
                let rows = window.costs.len();
                let (name, found) = (escaped(window.middle.name), window.found.len());
                write!(
                    page,
                    "<th scope=\"rowgroup\" rowspan=\"{rows}\">{number}. {name}</th>\
                     <td rowspan=\"{rows}\">{}</td>",
                    grouped(found as f64)
                )?;
            }
            let nodes = nodes.map_or("not told".into(), |nodes| nodes.to_string());
            writeln!(
                page,
                "<td class=\"word\">{way}</td><td class=\"word\">{via}</td><td>{p50_us:.1}</td>\
                 <td>{round_trips:.2}</td><td>{}</td><td>{nodes}</td></tr>",
                grouped(*bytes)
            )?;
        }
        page.push_str("</tbody>\n");
    }
    page.push_str("</table></div>\n");
    Ok(())
}

/// A number of degrees, with the half of the world that it lies in.
fn degrees(number: f64, positive: char, negative: char) -> String {
    let half = if number < 0.0 { negative } else { positive };
    format!("{:.1}° {half}", number.abs())
}

/// Text as it stands between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window<'static> {
        let middle = Place { id: 1, name: "A<b> & \"c\"", x: 10.0, y: -20.0, population: 5000 };
        let cost = Cost {
            way: "read",
            via: "read from memory",
            p50_us: 12.34,
            round_trips: 1.0,
            bytes: 4096.0,
            nodes: Some(7),
        };
        let rect = Rect::new(8.0, 12.0, -22.0, -18.0).unwrap();
        Window { found: vec![middle.clone()], middle, rect, costs: vec![cost; 4] }
    }

    #[test]
    fn the_page_says_all_and_loads_nothing() {
        let places = Places::load().unwrap();
        let page = page(&places, &[window()]).unwrap();
        for part in [
            "<html lang=\"en\">",
            "<title>Remora: a map of the demo</title>",
            "118,525 places",
            "A&lt;b&gt; &amp; \"c\"",
            "12.3",
            "4,096",
            "read from memory",
            "8.0° E to 12.0° E, 22.0° S to 18.0° S",
            "prefers-color-scheme: dark",
            "CC BY 4.0",
        ] {
            assert!(page.contains(part), "{part}");
        }
        for foreign in ["<script", "<img", "<link", "src=", "url(", "@import", "A<b>"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(page.len() < 400_000, "{} bytes", page.len());
    }

    #[test]
    fn every_element_is_closed_in_its_order() {
        let places = Places::load().unwrap();
        let page = page(&places, &[window(), window()]).unwrap();
        let mut open = Vec::new();
        let body = page.strip_prefix("<!DOCTYPE html>").unwrap();
        for tag in body.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').expect("a tag ends");
            let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') && name != "meta" {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }
}
