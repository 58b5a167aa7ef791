package recipes

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// block is a block of commands of a page.
type block struct {
	title    string   // heading above it
	commands string   // lines of sh
	needs    string   // a program beside those of every account; "": none
	prints   []string // lines that follow in a block of text
}

// parseBlocks returns the blocks of a page that are marked "sh run", each with the block
// of text that comes next. A word behind the mark is a program that the block needs.
func parseBlocks(page string) (list []block) {
	var title, within string
	for line := range strings.Lines(page) {
		text := strings.TrimRight(line, "\r\n")
		if mark, fence := strings.CutPrefix(text, "```"); fence {
			switch {
			case within != "":
				within = ""
			case mark == "sh run" || strings.HasPrefix(mark, "sh run "):
				within = "run"
				list = append(list, block{title: title, needs: strings.TrimPrefix(mark[len("sh run"):], " ")})
			case mark == "text":
				within = mark
			default:
				within = "other"
			}
			continue
		}
		switch {
		case within == "run":
			list[len(list)-1].commands += text + "\n"
		case within == "text" && len(list) > 0:
			last := &list[len(list)-1]
			last.prints = append(last.prints, text)
		case within != "":
		case strings.HasPrefix(text, "#"):
			title = strings.TrimLeft(text, "# ")
		}
	}
	return list
}

// page is a page with blocks that run.
type page struct {
	name   string // without the suffix
	blocks []block
}

// readPages returns the pages of a checkout that have blocks to run: README.md and those
// in docs.
func readPages(root string) (list []page, err error) {
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	for _, path := range append([]string{filepath.Join(root, "README.md")}, paths...) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if blocks := parseBlocks(string(text)); len(blocks) > 0 {
			list = append(list, page{strings.TrimSuffix(filepath.Base(path), ".md"), blocks})
		}
	}
	return list, nil
}

// number is a number with its unit.
var number = regexp.MustCompile(`[-+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?( ?(ns|µs|ms|s|min|B|[KMG]iB|k)\b)?%?`)

// maskNumbers is a line without its numbers and the widths of its columns.
func maskNumbers(line string) string {
	return strings.Join(strings.Fields(number.ReplaceAllString(line, "#")), " ")
}

// timed are units of numbers that differ from machine to machine.
var timed = regexp.MustCompile(`(ns|µs|ms|s|min|B|iB|k|%)$`)

// speed is a unit of its own word behind such a number.
const speed = " GFLOP/s"

// tolerance is how far a number of the page may be from the one that is printed, because
// instruction sets round differently.
const tolerance = 0.1

// findDifference returns the first number of want, a line of the page or its beginning,
// that is not within the tolerance of got's; "" where none is. Times, speeds and whole
// numbers below 100, such as threads, may differ.
func findDifference(want, got string) string {
	other := number.FindAllString(got, -1)
	for k, at := range number.FindAllStringIndex(want, -1) {
		text := want[at[0]:at[1]]
		x, err := parseNumber(text)
		if err != nil || k >= len(other) || timed.MatchString(text) || strings.HasPrefix(want[at[1]:], speed) {
			continue
		}
		if x == math.Trunc(x) && math.Abs(x) < 100 {
			continue
		}
		if y, err := parseNumber(other[k]); err != nil || math.Abs(x-y) > tolerance*max(math.Abs(x), math.Abs(y)) {
			return text
		}
	}
	return ""
}

// parseNumber reads a number of a line without its unit.
func parseNumber(text string) (float64, error) {
	return strconv.ParseFloat(strings.TrimRight(strings.ReplaceAll(text, ",", ""), "."), 64)
}

// findMissing returns the first of lines that does not follow in output, behind those
// before it, and why. Between them there may be others. A line may leave out its end: …
func findMissing(lines []string, output string) (line, why string) {
	rest := strings.Split(output, "\n")
next:
	for _, line := range lines {
		if line == "…" {
			continue
		}
		want, prefix := strings.CutSuffix(maskNumbers(line), "…")
		why := "it is not in its place"
		for len(rest) > 0 {
			text := rest[0]
			got := maskNumbers(text)
			rest = rest[1:]
			if got == want || prefix && strings.HasPrefix(got, strings.TrimSpace(want)) {
				off := findDifference(strings.TrimSuffix(line, "…"), text)
				if off == "" {
					continue next
				}
				why = fmt.Sprintf("%s is not within %.0f %% of the number in %q", off, 100*tolerance, text)
			}
		}
		return line, why
	}
	return "", ""
}
