package dataset

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/csv"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// shared returns a file of the real data sets, in FARFIELD_DATA or the folder beside a checkout.
func shared(t testing.TB, parts ...string) string {
	t.Helper()
	root := os.Getenv("FARFIELD_DATA")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared", "data")
	}
	path := filepath.Join(append([]string{root}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skip("no data sets beside this checkout, and FARFIELD_DATA names none")
	}
	return path
}

// refused checks that err contains each part of want.
func refused(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// refusals checks that a reader refuses malformed inputs.
func refusals[T any](t *testing.T, read func(io.Reader) (T, error), cases [][2]string) {
	t.Helper()
	for _, c := range cases {
		if _, err := read(strings.NewReader(c[0])); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%.60q: error is %v, want %q", c[0], err, c[1])
		}
	}
}

func packed(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const smallIDX = "\x00\x00\x08\x02\x00\x00\x00\x02\x00\x00\x00\x03abcdef"

func TestFileInflatesAndNamesThePath(t *testing.T) {
	dir := t.TempDir()
	for name, b := range map[string][]byte{
		"plain":  []byte(smallIDX),
		"gz":     packed(t, []byte(smallIDX)),
		"broken": packed(t, []byte(smallIDX))[:20],
		"bomb":   packed(t, append([]byte("\x00\x00\x08\x01\x04\x00\x00\x00"), make([]byte, 8<<20)...)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"plain", "gz"} {
		a, err := ReadFile(filepath.Join(dir, name), ReadIDX)
		if err != nil || !reflect.DeepEqual(a, &IDX{[]int{2, 3}, []byte("abcdef")}) {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	_, err := ReadFile(filepath.Join(dir, "broken"), ReadIDX)
	refused(t, err, filepath.Join(dir, "broken"), "EOF")
	_, err = ReadFile(filepath.Join(dir, "bomb"), ReadIDX)
	refused(t, err, "bomb: data: gzip: ", "at most 128 times as many are read")
	if _, err = ReadFile(filepath.Join(dir, "none"), ReadIDX); !os.IsNotExist(err) {
		t.Error(err)
	}
}

func TestIDXRefuses(t *testing.T) {
	// Of an int of 32 bits the size of a dimension may be too much already.
	most := "data: truncated: 2 of 4294967295 bytes"
	if strconv.IntSize == 32 {
		most = "dimensions: number 0 is 4294967295, too large for an int of this machine, which ends at 2147483647"
	}
	refusals(t, ReadIDX, [][2]string{
		{"", "magic: truncated: 0 of 4 bytes"},
		{"\x01\x00\x08\x01", "magic: it begins with 0x0100"},
		{"\x00\x00\x0d\x01\x00\x00\x00\x00", "type: it is 0x0d"},
		{"\x00\x00\x08\x00", "dimensions: there are 0, 1 to 8"},
		{"\x00\x00\x08\x09", "dimensions: there are 9"},
		{"\x00\x00\x08\x02\x00\x00\x00\x01", "dimensions: truncated: 4 of 8 bytes"},
		{"\x00\x00\x08\x02\xff\xff\xff\xff\xff\xff\xff\xff", "too large"},
		{"\x00\x00\x08\x01\xff\xff\xff\xffab", most},
		{smallIDX + "x", "of shape [2 3]: bytes follow"},
	})
}

func TestCIFAR10ChannelsAreInterleaved(t *testing.T) {
	record := func(label byte) []byte {
		b := []byte{label}
		for c := range 3 {
			for p := range 1024 {
				b = append(b, byte(p+50*c))
			}
		}
		return b
	}
	m, err := ReadCIFAR10(bytes.NewReader(append(record(3), record(9)...)))
	if err != nil {
		t.Fatal(err)
	}
	if m.Len() != 2 || !bytes.Equal(m.Labels, []byte{3, 9}) || !bytes.Equal(m.Image(1)[:6], []byte{0, 50, 100, 1, 51, 101}) {
		t.Errorf("%d images, labels %v, %v", m.Len(), m.Labels, m.Image(1)[:6])
	}
	refusals(t, ReadCIFAR10, [][2]string{
		{"", "records: there is none"},
		{string(record(1)) + "\x01\x02", "record 1: truncated: 2 of 3073 bytes"},
		{string(record(10)), "record 0: class is 10, there are 10"},
	})
}

func TestNothingHasNoRows(t *testing.T) {
	if n := (&Images{}).Len(); n != 0 {
		t.Errorf("the zero value has %d images", n)
	}
	if n := (&Images{Height: -1, Width: 2, Channels: 3, Pixels: make([]byte, 12)}).Len(); n != 0 {
		t.Errorf("%d images of a negative size", n)
	}
	if n := (&Table{}).Rows(); n != 0 {
		t.Errorf("the zero value has %d rows", n)
	}
}

func TestImageRecordsRefuseUnknownClasses(t *testing.T) {
	m, err := ReadImageRecords(1, 2, 2)(strings.NewReader("\x01ab\x00cd"))
	if err != nil || m.Len() != 2 || string(m.Image(1)) != "cd" || m.Labels[0] != 1 {
		t.Errorf("%v, %v", m, err)
	}
	if err := m.Append(&Images{Height: 1, Width: 2, Channels: 1, Pixels: []byte("ef"), Labels: []byte{1}}); err != nil || m.Len() != 3 {
		t.Error(m.Len(), err)
	}
	refused(t, m.Append(nil), "images: there are none to append")
	for _, x := range [][2]int{{0, 2}, {2, 0}, {-1, -2}, {-2, 3}, {math.MaxInt, 2}} {
		_, err := ReadImageRecords(x[0], x[1], 2)(strings.NewReader("\x01ab"))
		refused(t, err, fmt.Sprintf("records: images of %d×%d, 1 to 16777216 pixels are read", x[0], x[1]))
	}
	refused(t, m.Append(&Images{Height: 2, Width: 1, Channels: 1}), "2×1×1", "1×2×1")
	refused(t, m.Append(&Images{Height: 1, Width: 2, Channels: 1, Pixels: []byte("gh")}), "labels: there are 3 for 3 images, and 0 for 1")
}

func pictureOf(t testing.TB, w, h int, asJPEG bool) []byte {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		m.Set(i%w, i/w, color.NRGBA{byte(i), byte(i >> 8), 77, 255})
	}
	var b bytes.Buffer
	var err error
	if asJPEG {
		err = jpeg.Encode(&b, m, nil)
	} else {
		err = png.Encode(&b, m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPictureIsDecodedToRGB(t *testing.T) {
	p, err := ReadPicture(bytes.NewReader(pictureOf(t, 7, 5, false)))
	if err != nil || p.Width != 7 || p.Height != 5 || !bytes.Equal(p.Pixels[34*3:], []byte{34, 0, 77}) || len(p.Pixels) != 105 {
		t.Errorf("%v, %v", p, err)
	}
	if p, err := ReadPicture(bytes.NewReader(pictureOf(t, 9, 4, true))); err != nil || p.Width != 9 || p.Height != 4 || len(p.Pixels) != 108 {
		t.Errorf("%v, %v", p, err)
	}
	// A header that promises 60000×60000, and one of 8000×8000 for 100 bytes.
	for _, c := range []struct {
		w, h uint32
		want string
	}{{60000, 60000, "at most"}, {8000, 8000, "at most 16777216 are read from a file of"}} {
		b := pictureOf(t, 7, 5, false)
		binary.BigEndian.PutUint32(b[16:], c.w)
		binary.BigEndian.PutUint32(b[20:], c.h)
		binary.BigEndian.PutUint32(b[29:], crc(b[12:29]))
		_, err := ReadPicture(bytes.NewReader(b))
		refused(t, err, c.want)
	}
	var flat bytes.Buffer // 1.4 million pixels in some 2,000 bytes
	if err := png.Encode(&flat, image.NewGray(image.Rect(0, 0, 1200, 1200))); err != nil {
		t.Fatal(err)
	}
	if p, err := ReadPicture(&flat); err != nil || p.Width != 1200 {
		t.Errorf("a flat picture: %v", err)
	}
	refusals(t, ReadPicture, [][2]string{{"", "picture"}, {"GIF89a", "picture"}, {string(pictureOf(t, 7, 5, false)[:60]), "png"}})
	refusals(t, ReadSheet, [][2]string{{string(pictureOf(t, 7, 5, false)), "width: it is 7"}})
	s, err := ReadSheet(bytes.NewReader(pictureOf(t, 1024, 3, false)))
	if err != nil || s.Len() != 3 || !bytes.Equal(s.Image(2)[:3], []byte{0, 8, 77}) {
		t.Errorf("%v", err)
	}
}

func TestTableReadsNumbersUnderAHeader(t *testing.T) {
	got, err := ReadTable(',', "")(strings.NewReader("date,a,\"b, c\"\r\n\"1 May\",1,2.5\r\n2 May,-3e2,4\r\n"))
	want := &Table{"date", []string{"1 May", "2 May"}, []string{"a", "b, c"}, []float64{1, 2.5, -300, 4}}
	if err != nil || !reflect.DeepEqual(got, want) || got.Rows() != 2 || got.Row(1)[0] != -300 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ReadTable(',', "")(strings.NewReader("a,b\n1,2\n")); err != nil || got.Labels != nil || got.Rows() != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ReadTable(',', "")(strings.NewReader(",b\nx,2\n")); err != nil || got.Labels[0] != "x" || got.Values[0] != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	refusals(t, ReadTable(',', ""), [][2]string{
		{"", "header: there is none"},
		{"a,b\n", "rows: there is none"},
		{"a,b\n1,2\n3\n", "line 3: it has 1 fields, the first has 2"},
		{"a,b\n1,2\n3,x\n", `line 3: b: "x" is no finite number`},
		{"a,b\n1,2\ny,2\n", `line 3: a: "y" is no finite number`},
		{"a,b\n1,NaN\n", "no finite number"},
		{"a\nx\n", `columns: there is none of numbers beside "a"`},
	})
}

// A column of text may be named, and times must not go back.
func TestTableHasAColumnOfTimes(t *testing.T) {
	got, err := ReadTable(',', "time")(strings.NewReader("load,time\n1,2026-01-02 00:00\n2,2026-01-02 01:00\n"))
	if err != nil || got.Index != "time" || fmt.Sprint(got.Names, got.Values, len(got.Labels)) != "[load] [1 2] 2" {
		t.Errorf("%+v, %v", got, err)
	}
	refusals(t, ReadTable(',', "time"), [][2]string{{"load\n1\n", `column "time": there is none`}, {"time\n1\n", "columns: there is none of numbers"}})
	for labels, want := range map[string]int{"1 2 2 10": 0, "1 3 2": 2, "2026-01-02 2026-01-01": 1, "2026-01-02 2026-01-10": 0, "b a": 0, "2026-1-9 2026-1-10": 0} {
		table := &Table{Labels: strings.Fields(labels)}
		if row, _ := table.FindDisorder(); row != want {
			t.Errorf("%s: row %d, want %d", labels, row, want)
		}
	}
}

func TestFieldsAreReadWithQuotes(t *testing.T) {
	f, err := ReadFields('\t')(strings.NewReader("a\tb\n\"x\ty\"\t\"1\n2\"\nno\"quote\tz\n"))
	if err != nil || !reflect.DeepEqual(f.Rows, [][]string{{"x\ty", "1\n2"}, {`no"quote`, "z"}}) {
		t.Errorf("%q, %v", f, err)
	}
	if i, err := f.ColumnIndex("b"); i != 1 || err != nil {
		t.Error(i, err)
	}
	_, err = f.ColumnIndex("c")
	refused(t, err, `column "c": there is none; there are ["a" "b"]`)
	_, err = (&Fields{Names: []string{"a", "b", "c", "b"}}).ColumnIndex("b")
	refused(t, err, `column "b": columns 2 and 4 have this name`)
}

// No reading loses a line: a field that begins with a quote is read as a quoted one or, in a TSV
// whose lines have as many fields as the first, with its quotes; else the line is named.
func TestQuotesDoNotSwallowLines(t *testing.T) {
	for _, c := range []struct {
		name  string
		comma rune
		text  string
		want  [][]string
	}{
		{"quotes inside quotes", ',', "a,b\n\"x \"\"y\"\" z\",1\n\"\",2\n", [][]string{{`x "y" z`, "1"}, {"", "2"}}},
		{"quotes in unquoted fields", ',', "a,b\n5\" pipe,1\n6\",2\n", [][]string{{`5" pipe`, "1"}, {`6"`, "2"}}},
		{"line breaks, empty lines", ',', "a,b\r\n\r\n\"x\r\ny\",1\r\n\r\n2,\"z\"\r\n", [][]string{{"x\ny", "1"}, {"2", "z"}}},
		{"mark of a spreadsheet", ',', "\ufeffa,b\nx,1\n", [][]string{{"x", "1"}}},
		{"no end of line", ',', "a,b\nx,\"1\"", [][]string{{"x", "1"}}},
		{"quoted tabs", '\t', "a\tb\n\"x\ty\"\t1\n", [][]string{{"x\ty", "1"}}},
		{"doubled quotes of a TSV", '\t', "a\tb\n\"x \"\"y\"\"\"\t1\n", [][]string{{`x "y"`, "1"}}},
		{"speech", '\t', "\r\na\tb\n1\t\"Good\" film\n2\tbad\n3\t\"fine\"\n", [][]string{{"1", `"Good" film`}, {"2", "bad"}, {"3", `"fine"`}}},
		{"quotes of two lines", '\t', "a\tb\n1\t\"Good film\n2\tby all\"\r\n", [][]string{{"1", `"Good film`}, {"2", `by all"`}}},
		{"a quote without an end", '\t', "a\tb\n1\t\"Good film\n2\tbad\n", [][]string{{"1", `"Good film`}, {"2", "bad"}}},
		{"one column of lines", '\t', "a\n\"x\ny\"\n", [][]string{{"x\ny"}}},
	} {
		f, err := ReadFields(c.comma)(strings.NewReader(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if len(f.Names[0]) != 1 || !reflect.DeepEqual(f.Rows, c.want) {
			t.Errorf("%s: %q under %q, want %q", c.name, f.Rows, f.Names, c.want)
		}
	}
	refusals(t, ReadFields(','), [][2]string{
		{"a,b\n1,x\n2,\"Good\" film\n3,y\n", `line 3: field 2: "\"Good\" film": text follows the quote that ends it, " film"`},
		{"a,b\n1,\"Good film\n2,y\n", "line 2: field 2: \"\\\"Good film\" begins with a quote that has no end"},
	})
	refusals(t, ReadFields('\t'), [][2]string{
		{"a\tb\n\"x\t1\nbad\ny\"\t2\nz\t3\n", `quotes join 4 lines with all fields to 3 rows; with quotes as characters: line 3: it has 1 fields, the first has 2`},
		{"a\tb\n1\t\"Good\" film\n2\n", `line 2: field 2: "\"Good\" film": text follows the quote that ends it, " film"`},
		{"a\tb\n1\t\"Good\" film\n2\n", "with quotes as characters: line 3: it has 1 fields, the first has 2"},
	})
}

// Rows that encoding/csv writes are read as they were, and lines of a TSV without quoting remain
// as many, wherever they have quotes.
func TestTablesKeepTheirRows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 3000 {
		rows := [][]string{{"a", "b"}}
		for range r.IntN(6) {
			row := make([]string, 2)
			for i := range row {
				for range 1 + r.IntN(5) {
					row[i] += []string{"x", "y", `"`, `"`, `""`, " ", "\t,"}[r.IntN(7)]
				}
			}
			rows = append(rows, row)
		}
		for _, comma := range []rune{',', '\t'} {
			var b bytes.Buffer
			w := csv.NewWriter(&b)
			w.Comma = comma
			if err := w.WriteAll(rows); err != nil {
				t.Fatal(err)
			}
			f, err := ReadFields(comma)(&b)
			if err != nil || !slices.EqualFunc(f.Rows, rows[1:], slices.Equal) {
				t.Fatalf("table %d, %q, separator %q: read as %q, %v", n, rows[1:], comma, f, err)
			}
		}
		var lines strings.Builder
		for _, row := range rows {
			lines.WriteString(strings.ReplaceAll(row[0], "\t", "") + "\t" + strings.ReplaceAll(row[1], "\t", "") + "\n")
		}
		f, err := ReadFields('\t')(strings.NewReader(lines.String()))
		if err != nil || len(f.Rows) != len(rows)-1 {
			t.Fatalf("table %d, lines %q: read as %q, %v", n, lines.String(), f, err)
		}
	}
}

func TestExpressionsHaveDigitTargets(t *testing.T) {
	list, err := ReadExpressions(strings.NewReader("Source\tTarget\r\n( ( [MAX 2 ) ] )\t2\r\n"))
	if err != nil || len(list) != 1 || list[0] != (Expression{"( ( [MAX 2 ) ] )", 2}) {
		t.Errorf("%v, %v", list, err)
	}
	refusals(t, ReadExpressions, [][2]string{
		{"Source\tGoal\n1\t1\n", `column "Target"`},
		{"Source\tTarget\n1\t12\n", `row 0: Target is "12"`},
	})
}

func TestReviewsAreReadLineByLine(t *testing.T) {
	list, err := ReadReviews(strings.NewReader("1\t0_9\ttt1\tgood\tfilm\n0\t1_2\ttt2\tb\xe9d\n"))
	want := []Review{{true, "0_9", "tt1", []byte("good\tfilm")}, {false, "1_2", "tt2", []byte("b\xe9d")}}
	if err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("%v, %v", list, err)
	}
	if err := WriteReviews(io.Discard, []Review{{Name: "0_9"}}); err == nil {
		t.Error("a review without text was written, which ReadReviews refuses")
	}
	refusals(t, ReadReviews, [][2]string{
		{"1\ta\tb\n", "line 1: it has 3 fields, 4 are needed"},
		{"1\ta\tb\tc\n2\ta\tb\tc\n", `line 2: label: it is "2"`},
		{"1\ta\tb\t\n", "text: it is empty"},
		{strings.Repeat("x", lineLimit+1), "line 1: it has more than"},
	})
}

func TestPairsAreCutToTheirLimit(t *testing.T) {
	list, err := ReadPairs(3)(strings.NewReader("1.0\ta\tb\tfour\ttwo\n0\tc\td\tx\ty\n"))
	want := []Pair{{true, [2]string{"a", "b"}, [2][]byte{[]byte("fou"), []byte("two")}}, {false, [2]string{"c", "d"}, [2][]byte{[]byte("x"), []byte("y")}}}
	if err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("%v, %v", list, err)
	}
	refusals(t, ReadPairs(3), [][2]string{{"1\ta\tb\tx\n", "it has 4 fields"}, {"0.5\ta\tb\tx\ty\n", `label: it is "0.5"`}, {"1\ta\tb\tx\t\n", "text 2: it is empty"}})
}

func TestReviewFolderIsInOrderOfNumbers(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, class := range []string{"pos", "neg"} {
		put("urls_"+class+".txt", "http://x/title/tt1/user\nhttp://x/title/tt2/user\n")
		put(class+"/1_9.txt", class+" one")
		put(class+"/0_3.txt", class+" none")
	}
	put("pos/note", "not a review")
	list, err := ReadReviewFolder(dir)
	want := []Review{{true, "0_3", "tt1", []byte("pos none")}, {false, "0_3", "tt1", []byte("neg none")},
		{true, "1_9", "tt2", []byte("pos one")}, {false, "1_9", "tt2", []byte("neg one")}}
	if err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("%v, %v", list, err)
	}
	put("neg/2_1.txt", "x")
	_, err = ReadReviewFolder(dir)
	refused(t, err, "2_1.txt: its number is 2, urls_neg.txt has 2 films")
	put("urls_neg.txt", "http://x/")
	_, err = ReadReviewFolder(dir)
	refused(t, err, "urls_neg.txt: line 1: address")
}

func TestFASTARecordsAreReadOrRefused(t *testing.T) {
	list, err := ReadFASTA(strings.NewReader("\ufeff>a one two\nACG\r\nTn\n> b\n\n>c\tone two\n"))
	want := []Record{{"a", "one two", []byte("ACGTn")}, {"b", "", nil}, {"c", "one two", nil}}
	if err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("%q, %v", list, err)
	}
	refusals(t, ReadFASTA, [][2]string{
		{"", "records: there is none"},
		{"ACGT\n", "line 1: sequence: no header"},
		{">a\nAC GT\n", "line 2: sequence: byte 0x20 is no letter"},
	})
}

// wav encodes samples in one format.
func wav(code, channels, bits int, data string) string {
	le := binary.LittleEndian
	f := le.AppendUint16(nil, uint16(code))
	f = le.AppendUint16(f, uint16(channels))
	f = le.AppendUint32(f, 8000)
	f = le.AppendUint32(f, uint32(8000*channels*bits/8))
	f = le.AppendUint16(f, uint16(channels*bits/8))
	f = le.AppendUint16(f, uint16(bits))
	size := func(n int) string { return string(le.AppendUint32(nil, uint32(n))) }
	return "RIFF" + size(36+len(data)) + "WAVE" + "LIST" + size(3) + "abc\x00" + "fmt " + size(16) + string(f) + "data" + size(len(data)) + data
}

func TestWAVFormatsGiveTheSameSamples(t *testing.T) {
	for _, c := range []struct {
		file string
		want Audio
	}{
		{wav(1, 2, 8, "\x00\x80\xc0\x40"), Audio{8000, 2, []float32{-1, 0, 0.5, -0.5}}},
		{wav(1, 1, 16, "\x00\x80\x00\x40"), Audio{8000, 1, []float32{-1, 0.5}}},
		{wav(1, 1, 24, "\x00\x00\x80\x00\x00\x40"), Audio{8000, 1, []float32{-1, 0.5}}},
		{wav(1, 1, 32, "\x00\x00\x00\x80"), Audio{8000, 1, []float32{-1}}},
		{wav(3, 1, 32, "\x00\x00\x20\xc0"), Audio{8000, 1, []float32{-2.5}}},
		{wav(3, 1, 64, "\x00\x00\x00\x00\x00\x00\xf0\x3f"), Audio{8000, 1, []float32{1}}},
	} {
		if got, err := ReadWAV(strings.NewReader(c.file)); err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%v, %v, want %v", got, err, c.want)
		}
	}
	good := wav(1, 2, 16, "abcd")
	refusals(t, ReadWAV, [][2]string{
		{"RIFX", "header: truncated: 4 of 12"},
		{"RIFX    WAVE", "header: it is \"RIFX\""},
		{good[:len(good)-2], "data: truncated: 2 of 4 bytes"},
		{good[:12], "there is none"},
		{wav(1, 2, 16, "abc"), "3 bytes are not a multiple of a frame's 4"},
		{wav(1, 0, 16, ""), "channels: there are 0"},
		{wav(1, 1, 12, ""), "code 1 with 12 bits"},
		{wav(6, 1, 8, ""), "code 6 with 8 bits"},
		{wav(3, 1, 32, "\x00\x00\xc0\x7f"), "sample 0 is NaN"},
		{"RIFF    WAVEdata\x00\x00\x00\x00", "no chunk fmt before it"},
		{"RIFF    WAVEfmt \xff\xff\xff\xff", "fmt: it has 4294967295 bytes"},
		{"RIFF    WAVELIST\xff\xff\xff\xff", "chunk \"LIST\": of 4294967295 bytes"},
	})
}

// Readers of formats that have an end of their own read on: gzip has its checksum after it.
func TestDamagedEndOfACompressedFileIsRefused(t *testing.T) {
	for _, x := range []struct {
		content string
		read    func(io.Reader) (any, error)
	}{
		{wav(1, 2, 16, "abcd") + "LIST\x01\x00\x00\x00a\x00", boxed(ReadWAV)},
		{reviewTar(), boxed(ReadReviewArchive)},
	} {
		read := func(b []byte) error {
			r, err := Inflate(bytes.NewReader(b))
			if err == nil {
				_, err = x.read(r)
			}
			return err
		}
		good := packed(t, []byte(x.content))
		if err := read(good); err != nil {
			t.Error(err)
		}
		damaged := bytes.Clone(good)
		damaged[len(good)-8]++
		refused(t, read(damaged), "end: ", "checksum")
		refused(t, read(good[:len(good)-4]), "end: ", "EOF")
	}
}
