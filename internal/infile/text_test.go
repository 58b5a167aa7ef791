package infile

import (
	"bufio"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"
)

// encode16 returns a text in UTF-16.
func encode16(text string, order binary.AppendByteOrder, mark bool) string {
	if mark {
		text = ByteOrderMark + text
	}
	var b []byte
	for _, u := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, u)
	}
	return string(b)
}

func TestTextsAreReadInTheirEncoding(t *testing.T) {
	const text = "naïve,𝄞\nzwei,x\n"
	for _, c := range []struct {
		name, in     string
		plain, table string // of NewText and NewTable
	}{
		{"UTF-8", text, text, text},
		{"UTF-8 with a mark", ByteOrderMark + text, text, text},
		{"UTF-16, low first", encode16(text, binary.LittleEndian, true), text, text},
		{"UTF-16, high first", encode16(text, binary.BigEndian, true), text, text},
		{"UTF-16 without a mark", encode16(text, binary.LittleEndian, false), encode16(text, binary.LittleEndian, false), text},
		{"the same, high first", encode16(text, binary.BigEndian, false), encode16(text, binary.BigEndian, false), text},
		{"a mark alone", "\xff\xfe", "", ""},
		{"nothing", "", "", ""},
		{"bytes", "\xff\xfb\x90\x00", "\xff\xfb\x90\x00", "\xff\xfb\x90\x00"},
		{"a byte", "\xff", "\xff", "\xff"},
	} {
		for want, read := range map[string]func(io.Reader) io.Reader{"text " + c.plain: NewText, "table " + c.table: NewTable} {
			_, want, _ := strings.Cut(want, " ")
			for _, in := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in))} {
				if got, err := io.ReadAll(read(in)); err != nil || string(got) != want {
					t.Errorf("%s: %q, %v, want %q", c.name, got, err, want)
				}
			}
		}
	}
	for in, want := range map[string]string{
		"\xff\xfea\x00b":         "UTF-16: the text ends within a character at byte 5",
		"\xff\xfea\x00\x00\xd8":  "UTF-16: the text ends within a character at byte 6",
		"\xff\xfe\x00\xd8a\x00":  "UTF-16: half a surrogate pair at byte 2",
		"\xff\xfea\x00\x00\xdc":  "UTF-16: U+DC00 at byte 4 is no character",
		"\xfe\xff\x00a\x00\x00":  "UTF-16: U+0000 at byte 4 is no character",
		"\xff\xfe\x00\x00a\x00":  "is UTF-32, which is not read; save the text as UTF-8",
		"\x00\x00\xfe\xff\x00a1": "is UTF-32",
	} {
		if _, err := io.ReadAll(NewText(strings.NewReader(in))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", in, err, want)
		}
	}
}

func TestElementsOfArraysAreRecords(t *testing.T) {
	for in, want := range map[string]string{
		"{\"a\":1}\n\n{\"b\":[2]}":                              "{\"a\":1}\n\n{\"b\":[2]}",
		`[{"a":1},{"b":"],[\"{"}]`:                              "{\"a\":1}\n{\"b\":\"],[\\\"{\"}\n",
		" \n[\n  {\n\t\"a\": [1, 2]\r\n  },\n  {\"b\":{}}\n]\n": " \n{  \"a\": [1, 2]    }\n{\"b\":{}} \n",
		"[]":                      "",
		"[ ]\n":                   "",
		"[1]\n[2]\n{\"a\":3}":     "1\n2\n{\"a\":3}",
		"\xff\xfe[\x001\x00]\x00": "1\n",
		"[\"a\\\\\",\"]\"]":       "\"a\\\\\"\n\"]\"\n",
	} {
		for _, r := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in))} {
			x := NewRecords(r)
			got, err := io.ReadAll(x)
			if err != nil || string(got) != want {
				t.Errorf("%q gives %q, %v; want %q", in, got, err, want)
			}
		}
	}
	for in, want := range map[string]string{
		`[{"a":1}`:           "the JSON array has no end",
		`[{"a":1},,{"a":2}]`: "element 2 of the JSON array is empty",
		`[{"a":1},]`:         "element 2 of the JSON array is empty",
		`[,1]`:               "element 1 of the JSON array is empty",
		"[1] 2":              `'2' follows the end of a JSON array`,
		"\xff\xfe[\x00":      "the JSON array has no end",
		"[1]]":               `']' follows`,
	} {
		if _, err := io.ReadAll(NewRecords(strings.NewReader(in))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", in, err, want)
		}
	}
}

func FuzzRecords(f *testing.F) {
	f.Add([]byte("[{\"a\":1},{}]"), 3)
	f.Add([]byte("\xff\xfe[\x001\x00]\x00"), 1)
	f.Add([]byte("{}\n{}"), 2)
	f.Fuzz(func(t *testing.T, b []byte, piece int) {
		all, err := io.ReadAll(NewRecords(strings.NewReader(string(b))))
		if len(all) > 2*len(b)+1 {
			t.Errorf("%d bytes become %d", len(b), len(all))
		}
		again, err2 := io.ReadAll(NewRecords(iotest.OneByteReader(strings.NewReader(string(b)))))
		if string(all) != string(again) || (err == nil) != (err2 == nil) {
			t.Errorf("in pieces %q, %v; as a whole %q, %v", again, err2, all, err)
		}
	})
}

func TestLinesAreThoseOfScanLines(t *testing.T) {
	long := strings.Repeat("x", 9000)
	for _, in := range []string{"", "\n", "a", "a\n", "a\nbc\r\n\r\n\n" + long + "\nd\r", long, "\n" + long + "\r\n" + long, long + long + "\nb"} {
		for _, r := range []func(string) io.Reader{
			func(s string) io.Reader { return strings.NewReader(s) },
			func(s string) io.Reader { return iotest.OneByteReader(strings.NewReader(s)) },
			func(s string) io.Reader { return iotest.DataErrReader(strings.NewReader(s)) },
			func(s string) io.Reader { return iotest.TimeoutReader(iotest.HalfReader(strings.NewReader(s))) },
		} {
			want := bufio.NewScanner(r(in))
			want.Buffer(nil, 10000)
			got := NewLineScanner(r(in), 10000)
			for want.Scan() {
				if !got.Scan() || got.Text() != want.Text() {
					t.Fatalf("%.20q: %.20q, want %.20q", in, got.Text(), want.Text())
				}
			}
			if got.Scan() || got.Err() != want.Err() {
				t.Errorf("%.20q: %.20q, error %v, want %v", in, got.Text(), got.Err(), want.Err())
			}
		}
	}
}
