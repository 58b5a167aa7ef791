package main

import (
	"regexp"
	"strings"
)

// block is a block of commands of a page.
type block struct {
	section  string   // heading of second degree above it
	title    string   // heading above it
	commands string   // lines of sh
	prints   []string // lines that follow in a block of text
}

// blocks returns the blocks of sh of a page, each with the block of text that
// comes next.
func blocks(page string) (list []block) {
	var section, title, within string
	for line := range strings.Lines(page) {
		text := strings.TrimRight(line, "\r\n")
		if language, fence := strings.CutPrefix(text, "```"); fence {
			if within != "" {
				within = ""
				continue
			}
			if within = language; within == "" {
				within = "none"
			}
			if within == "sh" {
				list = append(list, block{section: section, title: title})
			}
			continue
		}
		switch {
		case within == "sh":
			list[len(list)-1].commands += text + "\n"
		case within == "text" && len(list) > 0:
			last := &list[len(list)-1]
			last.prints = append(last.prints, text)
		case within != "":
		case strings.HasPrefix(text, "## "):
			section = text[3:]
			title = section
		case strings.HasPrefix(text, "### "):
			title = text[4:]
		}
	}
	return list
}

// recipes returns the blocks of that section.
func recipes(list []block) (those []block) {
	for _, b := range list {
		if b.section == "Six recipes" {
			those = append(those, b)
		}
	}
	return those
}

// number is a number with its unit.
var number = regexp.MustCompile(`[-+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?( ?(ns|µs|ms|s|min|B|[KMG]iB|k)\b)?%?`)

// shape is a line without its numbers and the widths of its columns.
func shape(line string) string {
	return strings.Join(strings.Fields(number.ReplaceAllString(line, "#")), " ")
}

// missing returns the first of lines that does not follow in output, behind those
// before it. Between them there may be others. A line may leave out its end: …
func missing(lines []string, output string) (line string, miss bool) {
	rest := strings.Split(output, "\n")
next:
	for _, line := range lines {
		if line == "…" {
			continue
		}
		want, prefix := strings.CutSuffix(shape(line), "…")
		for len(rest) > 0 {
			got := shape(rest[0])
			rest = rest[1:]
			if got == want || prefix && strings.HasPrefix(got, strings.TrimSpace(want)) {
				continue next
			}
		}
		return line, true
	}
	return "", false
}
