package score

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/farfield-ml/farfield/internal/cli/display"
)

// templates counts the lines of a text by what is left of them when numbers are masked. Lines of a
// rare template are odd, which takes no model: it is the baseline of a score.
type templates struct {
	count  map[string]*Template
	lines  int64
	masked []byte
}

// Template is a line template: lines that differ only in their numbers share one.
type Template struct {
	Count int64  `json:"count"` // lines
	First int64  `json:"line"`  // number of the first of them, from 1
	Text  string `json:"text"`  // of this line
}

const (
	maxTemplates  = 1 << 16 // a text of more is no log
	templateBytes = 256     // of a line that tell its template
	// linesATemplate is the mean number of lines from which templates tell odd lines from others.
	linesATemplate = 5
)

// add counts a line.
func (t *templates) add(line []byte, number int64) {
	t.lines++
	if len(t.count) > maxTemplates {
		return
	}
	if t.count == nil {
		t.count = map[string]*Template{}
	}
	line = bytes.TrimRight(line[:min(len(line), templateBytes)], "\r\n")
	t.masked = appendMasked(t.masked[:0], line)
	if x := t.count[string(t.masked)]; x != nil {
		x.Count++
		return
	}
	t.count[string(t.masked)] = &Template{1, number, string(line)}
}

// rarest returns at most n templates, the rarest first; of equally rare ones the first of the
// text. It returns nil if the lines of the text have too many templates.
func (t *templates) rarest(n int) []Template {
	if len(t.count) > maxTemplates || t.lines < linesATemplate*int64(len(t.count)) {
		return nil
	}
	list := make([]Template, 0, len(t.count))
	for _, x := range t.count {
		list = append(list, *x)
	}
	slices.SortFunc(list, func(a, b Template) int {
		if a.Count != b.Count {
			return int(min(max(a.Count-b.Count, -1), 1))
		}
		return int(min(max(a.First-b.First, -1), 1))
	})
	return list[:min(n, len(list))]
}

// print prints a template, cut to the width of a terminal; 0: there is none.
func (x Template) print(w io.Writer, width int) error {
	head, text := fmt.Sprintf("%10d × %7d: ", x.Count, x.First), x.Text
	if width > 0 {
		text = display.Shown(text, max(width-len(head), 1))
	}
	_, err := fmt.Fprintln(w, head+text)
	return err
}

// appendMasked appends a line to dst, with # for each number. Numbers are words of letters and
// digits with a digit, eight or more hexadecimal digits, and hexadecimal digits after a number
// and a hyphen, as in a UUID. Blanks in a row become one.
func appendMasked(dst, line []byte) []byte {
	for i := 0; i < len(line); {
		end, digits, hex := i, false, true
		for ; end < len(line) && isWord(line[end]); end++ {
			c := line[end] | 0x20
			digits = digits || c >= '0' && c <= '9'
			hex = hex && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f')
		}
		switch {
		case end == i && line[i] == ' ' && len(dst) > 0 && dst[len(dst)-1] == ' ':
			i++
		case end == i:
			dst = append(dst, line[i])
			i++
		case digits, hex && (end-i >= 8 || bytes.HasSuffix(dst, []byte("#-"))):
			dst, i = append(dst, '#'), end
		default:
			dst, i = append(dst, line[i:end]...), end
		}
	}
	return dst
}

// isWord reports whether c is an ASCII letter or digit.
func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}
