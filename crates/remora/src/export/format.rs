//! Formats of files.

use clap::ValueEnum;
use std::path::Path;

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ExportFormat {
    /// id,min_x,min_y,max_x,max_y,data; bytes as they are, in quotes. A last column,
    /// wkt, if objects have geometries.
    Csv,
    /// One FeatureCollection.
    Geojson,
    /// A Feature on each line.
    Geojsonl,
    /// OpenStreetMap's PBF: points, lines and areas on the globe.
    Pbf,
}

impl ExportFormat {
    /// The format from a file's name.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "geojson" | "json" => Some(Self::Geojson),
            "geojsonl" | "geojsons" | "ndjson" | "jsonl" => Some(Self::Geojsonl),
            "pbf" => Some(Self::Pbf),
            _ => None,
        }
    }
}
