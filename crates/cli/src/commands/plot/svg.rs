//! Writes SVG as text: only what the plots need.

use std::fmt::{Display, Write as _};

/// The elements of a picture.
#[derive(Debug, Default)]
pub(super) struct Svg {
    text: String,
}

/// The end of a text that is at its coordinates.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// Appends markup.
    pub(super) fn raw(&mut self, markup: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{markup}");
    }

    /// Appends a text of a class of the style sheet.
    pub(super) fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let (x, y, text) = (number(x), number(y), escape(text));
        self.raw(format_args!("<text x=\"{x}\" y=\"{y}\" class=\"{class}\"{anchor}>{text}</text>"));
    }

    /// Appends a rectangle of a class, with the text that a viewer shows for it.
    pub(super) fn rect(
        &mut self,
        (x, y): (f64, f64),
        (w, h): (f64, f64),
        class: &str,
        title: &str,
    ) {
        let [x, y, w, h] = [x, y, w, h].map(number);
        let title = match title {
            "" => String::new(),
            title => format!("<title>{}</title>", escape(title)),
        };
        self.raw(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" \
             class=\"{class}\">{title}</rect>"
        ));
    }

    /// The markup.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// Several rectangles as one path.
#[derive(Debug, Default)]
pub(super) struct Rectangles(String);

impl Rectangles {
    pub(super) fn add(&mut self, (x, y): (f64, f64), (w, h): (f64, f64)) {
        let [x, y, w, h] = [x, y, w, h].map(number);
        let _ = write!(self.0, "M{x} {y}h{w}v{h}h-{w}z");
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn path(&self) -> &str {
        &self.0
    }
}

/// A coordinate, to a hundredth.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match text {
        "-0" | "" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// A text as XML may have it: markup is escaped, characters that XML has no form for are replaced.
pub(super) fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            '\t' | '\n' | '\r' => shown.push(' '),
            '\0'..='\u{1f}' | '\u{7f}' | '\u{fffe}' | '\u{ffff}' => shown.push('\u{fffd}'),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, -0.001, 1.5, 2.0, 100.0, 7.1415].map(number).join(" "),
            "0 0 1.5 2 100 7.14"
        );
    }

    #[test]
    fn no_text_becomes_markup() {
        assert_eq!(
            escape("<&\">'\u{1}\u{ffff}\n]]>\u{e9}"),
            "&lt;&amp;&quot;&gt;&#39;\u{fffd}\u{fffd} ]]&gt;\u{e9}"
        );
    }
}
