//! Names and looks of the uses of blocks.
//!
//! Every use has a letter and a pattern besides its colour, so that a print in black and white, or
//! a reader that sees few colours, can tell them apart.

use nextent::check::BlockUse;

/// How a use is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// A name for programs, and the class in the style sheet.
    pub(super) id: &'static str,
    pub(super) letter: char,
    pub(super) name: &'static str,
    colour: &'static str,
    pattern: Pattern,
    /// The letter is white.
    pub(super) dark: bool,
}

/// Lines over the colour.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    Plain,
    Rising,
    Falling,
    Vertical,
    Horizontal,
    Crossed,
    Dots,
}

impl Pattern {
    /// The lines within a tile of six by six.
    fn markup(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Rising => "<path d=\"M-1 1l2-2M0 6l6-6M5 7l2-2\"/>",
            Self::Falling => "<path d=\"M-1 5l2 2M0 0l6 6M5-1l2 2\"/>",
            Self::Vertical => "<path d=\"M1.5 0v6M4.5 0v6\"/>",
            Self::Horizontal => "<path d=\"M0 1.5h6M0 4.5h6\"/>",
            Self::Crossed => "<path d=\"M0 0l6 6M0 6l6-6\"/>",
            Self::Dots => "<path d=\"M1 1.5h1M4 4.5h1\"/>",
        }
    }
}

/// The look of a use.
pub(super) fn look(of: BlockUse) -> Look {
    let look =
        |id, letter, name, colour, pattern, dark| Look { id, letter, name, colour, pattern, dark };
    use Pattern::{Crossed, Dots, Falling, Horizontal, Plain, Rising, Vertical};
    match of {
        BlockUse::Superblocks => {
            look("superblocks", 'S', "Superblock and backups", "#111111", Plain, true)
        }
        BlockUse::Descriptors => {
            look("descriptors", 'G', "Group descriptors and backups", "#5a5a5a", Plain, true)
        }
        BlockUse::DescriptorGrowth => look(
            "descriptor_growth",
            'R',
            "Reserved for group descriptors",
            "#c4c4c4",
            Rising,
            false,
        ),
        BlockUse::Bitmaps => {
            look("bitmaps", 'B', "Block and inode bitmaps", "#6a3d9a", Plain, true)
        }
        BlockUse::InodesUsed => {
            look("inodes_used", 'I', "Inode tables, blocks in use", "#c65102", Plain, true)
        }
        BlockUse::InodesUnused => {
            look("inodes_unused", 'i', "Inode tables, unused blocks", "#fbd2a8", Dots, false)
        }
        BlockUse::Journal => look("journal", 'J', "Journal", "#e8888d", Crossed, false),
        BlockUse::Directories => look("directories", 'D', "Directories", "#1b7837", Plain, true),
        BlockUse::Maps => {
            look("maps", 'M', "Extent trees, indirect blocks", "#8fd3c1", Horizontal, false)
        }
        BlockUse::Attributes => {
            look("attributes", 'A', "Extended attributes", "#e29ad0", Vertical, false)
        }
        BlockUse::Special => {
            look("special", 'Q', "Quota, orphans, other special files", "#b59a6d", Falling, false)
        }
        BlockUse::Files => look("files", 'F', "Contents of files", "#2166ac", Plain, true),
        BlockUse::Unwritten => {
            look("unwritten", 'U', "Allocated, not yet written", "#9ecae1", Falling, false)
        }
        BlockUse::ClusterRest => {
            look("cluster_rest", 'C', "Rest of clusters in use", "#d6e6f4", Vertical, false)
        }
        BlockUse::Unowned => {
            look("unowned", 'X', "In use, owner unknown", "#ffe14d", Crossed, false)
        }
        BlockUse::Unreadable => {
            look("unreadable", '!', "Cannot be read", "#ff7f50", Horizontal, false)
        }
        BlockUse::Free => look("free", ' ', "Free", "#ffffff", Plain, false),
    }
}

/// The patterns and style sheet rules of all uses.
pub(super) fn definitions() -> String {
    let mut patterns = String::from("<defs>\n");
    let mut rules = String::from("<style>\n");
    for of in BlockUse::ALL {
        let Look { id, colour, pattern, .. } = look(of);
        if matches!(pattern, Pattern::Plain) {
            rules.push_str(&format!(".{id}{{fill:{colour}}}\n"));
            continue;
        }
        let lines = pattern.markup();
        patterns.push_str(&format!(
            "<pattern id=\"p-{id}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
             <rect width=\"6\" height=\"6\" fill=\"{colour}\"/>\
             <g stroke=\"#000\" stroke-opacity=\".55\" stroke-width=\".8\">{lines}</g></pattern>\n"
        ));
        rules.push_str(&format!(".{id}{{fill:url(#p-{id})}}\n"));
    }
    rules.push_str(RULES);
    format!("{patterns}</defs>\n{rules}</style>")
}

const RULES: &str = "\
text{font-family:'DejaVu Sans',Verdana,sans-serif;font-size:11px;fill:#111}
.title{font-size:20px;font-weight:bold}
.head{font-size:14px;font-weight:bold}
.note{fill:#444}
.warn{font-weight:bold}
.value{font-size:16px;font-weight:bold}
.letter{font-size:10px;font-weight:bold;stroke:#fff;stroke-width:3px;paint-order:stroke}
.small{font-size:10px;fill:#333}
.light{fill:#fff;stroke:none}
.paper{fill:#fff}
.ground{fill:#fff;stroke:#999;stroke-width:.5}
.frame{fill:none;stroke:#444;stroke-width:.7}
.bar{fill:#4a6fa5}
.tile{fill:#f3f3f0;stroke:#bbb;stroke-width:.5}
.reserved{fill:none;stroke:#111;stroke-width:1.2}
.group{stroke:#888;stroke-width:.8}
.flex{stroke:#000;stroke-width:1.6}
.row{fill:none;pointer-events:all}
";
