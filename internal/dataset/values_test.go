package dataset

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestValuesAreReadFromTablesAndArrays(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name, content, label, want string
	}{
		{"a.csv", "1,2\n3,-4e1\n", "", "[] 2 [1 2 3 -40] []"},
		{"head.csv", "x, y\n1, 2\n3,4\n", "", "[x y] 2 [1 2 3 4] []"},
		// The first column of a table that pandas wrote has no name.
		{"index.csv", ",x\n0,1\n", "", "[ x] 2 [0 1] []"},
		{"sodium.csv", "Na,K\n1,2\n", "", "[Na K] 2 [1 2] []"},
		{"tabs.TSV", "1\t2\n", "", "[] 2 [1 2] []"},
		{"labels.csv", "x,label,y\n1,a,2\n3,b b,4\n", "label", "[x y] 2 [1 2 3 4] [a b b]"},
		// Names of columns may be numbers where one of them is the labels'.
		{"numbers.csv", "0,label\n1,2\n", "label", "[0] 1 [1] [2]"},
		{"rows.npy", npy("<f4", "(1, 2)", "\x00\x00\x80\x3f\x00\x00\x00\x40"), "", "[] 2 [1 2] []"},
		{"row.npy", npy("<i4", "(2,)", "\x05\x00\x00\x00\xff\xff\xff\xff"), "", "[] 1 [5 -1] []"},
		{"wide.npy", npy("<f8", "(1,)", "\x00\x00\x00\x00\x00\x00\xf0\x3f"), "", "[] 1 [1] []"},
	} {
		path := filepath.Join(dir, c.name)
		if err := os.WriteFile(path, []byte(c.content), 0o666); err != nil {
			t.Fatal(err)
		}
		v, err := ReadValues(path, c.label)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if got := fmt.Sprint(v.Names, v.Columns, v.Numbers, v.Labels); got != c.want || v.Rows() != len(v.Numbers)/v.Columns {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		read    func(io.Reader) (*Values, error)
		content string
		want    string
	}{
		{ReadValuesTable(',', ""), "", "header: there is none"},
		{ReadValuesTable(',', ""), "x,y\n", "rows: there is none"},
		{ReadValuesTable(',', ""), "1,2\n3\n", "line 2: it has 1 fields, the first has 2"},
		{ReadValuesTable(',', ""), "1,2\n3,?\n", `line 2: column 2: "?" is no finite number`},
		{ReadValuesTable(',', ""), "1\nnan\n", `line 2: column 1: "nan" is no finite number`},
		{ReadValuesTable(',', ""), "1\n1e39\n", `line 2: column 1: "1e39" is beyond 3.4028235e+38`},
		// A first row that lacks a number is no header.
		{ReadValuesTable(',', ""), "0.1,\n0.2,0.3\n", `line 1: column 2: "" is no finite number; a row of names has no numbers`},
		{ReadValuesTable(',', ""), "1.5,n/a,2.5\n1,2,3\n", `line 1: column 2: "n/a" is no finite number`},
		{ReadValuesTable(',', ""), "x,2020\n1,2\n", `line 1: column 1: "x" is no finite number; a row of names has no numbers`},
		{ReadValuesTable(',', ""), "1e999,x\n1,2\n", `line 1: column 1: "1e999" is no finite number`},
		{ReadValuesTable(',', ""), "nan,x\n1,2\n", `line 1: column 1: "nan" is no finite number`},
		{ReadValuesTable(',', ""), ",\n1,2\n", `line 1: column 1: "" is no finite number`},
		{ReadValuesTable(',', ""), "NA,?\n1,2\n", `line 1: column 1: "NA" is no finite number`},
		{ReadValuesTable(',', "label"), "x,y\n1,2\n", `line 1: column "label": there is none; there are ["x" "y"]`},
		{ReadValuesTable(',', "label"), "label\na\n", "line 1: columns: there is none of numbers"},
		{ReadValuesNPY, npy("<f4", "(1, 1, 1)", "\x00\x00\x80\x3f"), "shape: it is [1 1 1], [N, C] or [N] is needed"},
		{ReadValuesNPY, npy("<f4", "(0, 2)", ""), "shape: it is [0 2], a row and a column are needed"},
		{ReadValuesNPY, npy("<f4", "(1, 2)", "\x00\x00\x80\x3f\x00\x00\xc0\x7f"), "row 0: column 2: NaN is no finite number"},
		{ReadValuesNPY, npy("|b1", "(1,)", "\x01"), "type: it is"},
		{ReadValuesNPY, "x", "truncated"},
		{ReadValuesNPY, npy("<f4", "(1,)", "\x00\x00\x80\x3f\x00"), "bytes follow the data"},
	} {
		if v, err := c.read(strings.NewReader(c.content)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q gives %v, %v, want %s", c.content, v, err, c.want)
		}
	}
	if _, err := ReadValues("x.txt", ""); err == nil || !strings.Contains(err.Error(), `its name ends in ".txt"; .csv, .tsv and .npy are read`) {
		t.Errorf("error is %v", err)
	}
}

// Seconds since 1970 differ by less than 32 bits resolve. The other column is rounded.
func TestValuesKeepDifferencesOfLargeNumbers(t *testing.T) {
	for content, want := range map[string]string{
		"1700000000,0.1\n1700000001,0.7\n": fmt.Sprint([]float64{1700000000, float64(float32(0.1)), 1700000001, float64(float32(0.7))}),
		"2049.1\n2050.1\n":                 "[2049.1 2050.1]", // just beyond 2^11 ranges
		"2046.1\n2047.1\n":                 "[]",
		"0.1,16000000\n0.3,16000001\n":     "[]", // 24 bits are exact
	} {
		v, err := ReadValuesTable(',', "")(strings.NewReader(content))
		if err != nil || fmt.Sprint(v.Numbers64) != want || v.Rows() != 2 {
			t.Errorf("%q gives %v, %v, want %v", content, v, err, want)
		}
	}
	v, err := ReadValuesNPY(strings.NewReader(npy("<i8", "(2,)", "\x00\xf1\x53\x65\x00\x00\x00\x00\x01\xf1\x53\x65\x00\x00\x00\x00")))
	if err != nil || fmt.Sprint(v.Numbers64) != "[1.7e+09 1.700000001e+09]" {
		t.Errorf("%v, %v", v, err)
	}
}

// A CSV has the separator and the encoding that its bytes tell.
func TestTablesOfSpreadsheets(t *testing.T) {
	utf16le := func(s string) string {
		b := []byte("\xff\xfe")
		for _, c := range s {
			b = append(b, byte(c), byte(c>>8))
		}
		return string(b)
	}
	want := &Fields{Names: []string{"text", "label"}, Rows: [][]string{{"a, b; c", "é"}, {"d", "x"}}}
	for _, content := range []string{
		"text,label\n\"a, b; c\",é\nd,x\n",
		"\ufefftext,label\n\"a, b; c\",é\nd,x\n",
		"text;label\r\n\"a, b; c\";é\r\nd;x\r\n",
		"text\tlabel\na, b; c\té\nd\tx\n",
		"sep=;\r\ntext;label\r\n\"a, b; c\";é\r\nd;x\r\n",
		"SEP=|\ntext|label\na, b; c|é\nd|x",
		"\ufeffsep=,\ntext,label\n\"a, b; c\",é\nd,x\n",
		utf16le("text;label\n\"a, b; c\";é\nd;x\n"),
		utf16le("sep=\t\ntext\tlabel\na, b; c\té\nd\tx\n"),
		utf16le("text,label\n\"a, b; c\",é\nd,x\n")[2:],
	} {
		if got, err := ReadFields(',')(strings.NewReader(content)); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q: %q, %v", content, got, err)
		}
	}
	for _, content := range []string{"sep=\t\r\ntext\tlabel\r\na, b; c\té\r\nd\tx\r\n", "sep=;\ntext;label\n\"a, b; c\";é\nd;x\n"} {
		if got, err := ReadFields('\t')(strings.NewReader(content)); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("a TSV %q: %q, %v", content, got, err)
		}
	}
	for content, want := range map[string][]float32{
		"a;b\n1,5;2\n-0,25;3e1\n":      {1.5, 2, -0.25, 30},
		"1,5;2\n3.5;4\n":               {1.5, 2, 3.5, 4},
		"a\tb\n1\t2\n":                 {1, 2},
		utf16le("sep=;\na;b\n1,5;2\n"): {1.5, 2},
	} {
		if v, err := ReadValuesTable(',', "")(strings.NewReader(content)); err != nil || !slices.Equal(v.Numbers, want) {
			t.Errorf("%q: %v, %v, want %v", content, v, err, want)
		}
	}
	for content, want := range map[string]string{
		"a;b\n1,5,0;2\n":            `"1,5,0" is no finite number`,
		"a,b\n\"1,5\",2\n":          `"1,5" is no finite number`,
		"\xff\xfe\x00\x00a\x00":     "is UTF-32, which is not read",
		"\xff\xfea\x00,\x00b\x00\n": "UTF-16: the text ends within a character",
	} {
		if _, err := ReadValuesTable(',', "")(strings.NewReader(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", content, err, want)
		}
	}
}
