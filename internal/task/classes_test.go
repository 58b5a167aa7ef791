package task

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestIntegerClassesAreInTheOrderOfTheirNumbers(t *testing.T) {
	for names, want := range map[string]string{
		"10 2 0 11 1 2":             "0 1 2 10 11",
		"-1 1 0 -10":                "-10 -1 0 1",
		"10 2 x":                    "10 2 x",
		"10 2 02":                   "02 10 2",
		"10 2 +3":                   "+3 10 2",
		"1e1 2":                     "1e1 2",
		"b a b":                     "a b",
		"99999999999999999999 2 10": "10 2 99999999999999999999",
	} {
		sorted, index := sortClasses(strings.Fields(names))
		if got := strings.Join(sorted, " "); got != want {
			t.Errorf("%s: %s, want %s", names, got, want)
		}
		for i, name := range sorted {
			if index[name] != int32(i) {
				t.Errorf("%s: the index of %s is %d, want %d", names, name, index[name], i)
			}
		}
	}
}

// TestClassesOfAllSourcesAreInTheOrderOfTheirNumbers reads the labels 0 to 11 from a table, from
// folders of texts and from a list of series.
func TestClassesOfAllSourcesAreInTheOrderOfTheirNumbers(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	table, list := "text,label\n", "file,label\n"
	var want []string
	for i := range 12 {
		want = append(want, fmt.Sprint(i))
		for k := range 12 {
			table += fmt.Sprintf("row %d of class %d,%[2]d\n", k, i)
			write(fmt.Sprintf("texts/%d/%d.txt", i, k), "a text")
			write(fmt.Sprintf("series/%d-%d.csv", i, k), "x\n1\n2\n3\n")
			list += fmt.Sprintf("%d-%d.csv,%[1]d\n", i, k)
		}
	}
	for name, set := range map[string]map[string]string{
		"file":   {"data": write("table.csv", table)},
		"texts":  {"data": filepath.Join(dir, "texts")},
		"series": {"data": write("series/list.csv", list)},
	} {
		row := name
		if name == "texts" {
			row = "file"
		}
		src, err := Open(row, Options{Settings: set})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := src.(ClassNamer).ClassNames(); !slices.Equal(got, want) {
			t.Errorf("%s: classes %q, want %q", name, got, want)
		}
	}
}
