package task

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fastaOf writes records of two classes, labelled by folder, file, header and table.
func fastaOf(t *testing.T) string {
	t.Helper()
	files, table := map[string][]byte{}, "name,label\n"
	for _, class := range []string{"cat", "dog"} {
		var b strings.Builder
		for i := range 40 {
			two := map[string]string{"cat": "AC", "dog": "GT"}[class]
			letters := string(two[0]) + string(two[1])
			for k := range 16 + i%4 {
				letters += string(two[i>>(k%6)&1])
			}
			fmt.Fprintf(&b, ">%s%d|%s|x species=%s [strain=%d]\n%s\n", class, i, class, class, i, letters)
			table += fmt.Sprintf("%s%d|%s|x,%s\n", class, i, class, class)
		}
		files["data/"+class+"/"+class+".1.fasta"] = []byte(b.String())
	}
	files["data/labels.csv"] = []byte(table)
	return filepath.Join(folderOf(t, files), "data")
}

func TestFASTALabelsComeFromFolderFileHeaderOrTable(t *testing.T) {
	dir := fastaOf(t)
	for _, label := range []string{"folder", "file", "word:2", "key:species", "labels.csv"} {
		for _, as := range []string{"records", "windows"} {
			src := openSource(t, "fasta", Options{Seed: 1}, "data", dir, "label", label, "as", as, "length", "12")
			holds(t, src)
			if names := src.(ClassNamer).ClassNames(); !slices.Equal(names, []string{"cat", "dog"}) {
				t.Errorf("%s: classes %q", label, names)
			}
			for i := range 5 {
				s := take(t, src, Test, i)
				if is := slices.Contains(s.Tokens, 3); is != (s.Class == 1) || len(s.Tokens) != 12 {
					t.Errorf("%s, %s: class %d of %v", label, as, s.Class, s.Tokens)
				}
			}
			if list, err := src.Baselines(0); err != nil || list[1].Score != 1 {
				t.Errorf("%s, %s: %+v, %v", label, as, list, err)
			}
		}
	}
	one := openSource(t, "fasta", Options{Seed: 1}, "data", filepath.Join(dir, "cat", "cat.1.fasta"), "label", "key:strain", "letters", "all")
	if s := take(t, one, Train, 0); one.Spec().Classes != 40 || one.Spec().Vocab != 29 || s.Tokens[1] != 3 || s.Tokens[0] != 1 {
		t.Errorf("%+v, tokens %v", one.Spec(), s.Tokens)
	}
}

func TestFASTARefusesBadLabels(t *testing.T) {
	dir := fastaOf(t)
	for _, c := range []struct {
		set  []string
		want string
	}{
		{[]string{"label", "words"}, `label: "words" is none of folder, file, word:N, key:NAME`},
		{[]string{"label", "word:0"}, `label: "word:0": word:N with N from 1`},
		{[]string{"label", "word:9"}, `cat.1.fasta: record 0, "cat0|cat|x": its header has 5 words, word 9 is asked for`},
		{[]string{"label", "key:no"}, "its header has no no="},
		{[]string{"label", "none.csv"}, "label: open "},
		{[]string{"label", "word:3"}, `there are 1 classes in 80 records, 2 to 65536 are possible: ["x"]`},
		{[]string{"as", "windows", "length", "999"}, `class "cat": length: no train part has a window of 999 bases; set as=records`},
		{[]string{"as", "windows", "letters", "all"}, "set as=records, or letters=dna"},
		{[]string{"length", "0"}, "length: it is 0"},
		{[]string{"data", filepath.Join(dir, "none")}, "data: stat"},
		{[]string{"data", ""}, "data: a FASTA file or a folder"},
	} {
		set := append([]string{"data", dir}, c.set...)
		if _, err := Open("fasta", Options{Settings: pairs(set)}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error is %v, want %s", c.set, err, c.want)
		}
	}
	table := folderOf(t, map[string][]byte{"a.fa": []byte(">x\nA\n>y\nC\n"), "t.csv": []byte("name,label\nx,1\n"), "u.csv": []byte("name,class\nx,1\n")})
	for name, want := range map[string]string{"t.csv": `record 1, "y": ` + filepath.Join(table, "t.csv") + " has no row of that name", "u.csv": `column "label": there is none`} {
		if _, err := Open("fasta", Options{Settings: pairs([]string{"data", filepath.Join(table, "a.fa"), "label", name})}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %s", name, err, want)
		}
	}
}
