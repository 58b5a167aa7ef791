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
		files["data/"+class+"/"+class+".fasta"] = []byte(b.String())
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
			if list, err := Baselines(src, 0); err != nil || list[1].Score != 1 {
				t.Errorf("%s, %s: %+v, %v", label, as, list, err)
			}
		}
	}
	one := openSource(t, "fasta", Options{Seed: 1}, "data", filepath.Join(dir, "cat", "cat.fasta"), "label", "key:strain", "letters", "all")
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
		{[]string{"label", "word:9"}, `cat.fasta: record 0, "cat0|cat|x": its header has 5 words, word 9 is asked for`},
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
	table := folderOf(t, map[string][]byte{"a.fa": []byte(">x\nA\n>y\nC\n"), "t.csv": []byte("name,label\nx,1\n"), "u.csv": []byte("name,class\nx,1\n"),
		"v.csv": []byte("name,label\nx,1\ny,2\nx,1\nx,3\n"), "w.csv": []byte("name,label\nx,1\ny,\n")})
	for name, want := range map[string]string{"v.csv": `v.csv: "x" has two labels, "1" and "3"`, "w.csv": `record 1, "y": its label in ` + filepath.Join(table, "w.csv") + " is empty", "t.csv": `record 1, "y": ` + filepath.Join(table, "t.csv") + " has no row of that name", "u.csv": `column "label": there is none`} {
		if _, err := Open("fasta", Options{Settings: pairs([]string{"data", filepath.Join(table, "a.fa"), "label", name})}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %s", name, err, want)
		}
	}
}

func TestFASTAClassIsTheFileNameWithoutSuffix(t *testing.T) {
	dir := folderOf(t, map[string][]byte{"E.coli.fa": []byte(">x\nAC\n"), "E.faecium.FNA": []byte("\ufeff>x\nAC\n"), "b.1.gz": []byte(">x\nAC\n>y\nA\n>z\nA\n")})
	src := openSource(t, "fasta", Options{Seed: 1}, "data", dir, "label", "file")
	if names := src.(ClassNamer).ClassNames(); !slices.Equal(names, []string{"E.coli", "E.faecium", "b.1"}) {
		t.Errorf("classes %q", names)
	}
}

// Records in a folder test are in the test set alone.
func TestFASTAFoldersOfSplitsAreKept(t *testing.T) {
	letters := map[string]string{"train": "A", "val": "C", "test": "G"}
	files := map[string][]byte{"labels.csv": []byte("name,label\n0,x\n1,y\n"), "notes.md": nil}
	for split, letter := range letters {
		for i := range 8 {
			files[fmt.Sprintf("%s/%c/%d.fa", split, "ab"[i%2], i)] = fmt.Appendf(nil, ">%d kind=k%d\n%s%c%cT\n", i%2, i%2, strings.Repeat(letter, 12), "ACGT"[i%4], "ACGT"[i/4])
		}
	}
	dir := folderOf(t, files)
	for _, set := range [][]string{nil, {"label", "key:kind"}, {"label", "labels.csv"}, {"as", "windows"}} {
		src := openSource(t, "fasta", Options{Seed: 1}, append([]string{"data", dir, "length", "14"}, set...)...)
		holds(t, src)
		if c := src.Spec().Count; c != [3]int{8, 8, 8} && c[0] != Endless {
			t.Errorf("%v: %v samples", set, c)
		}
		for split := range 3 {
			for i := range 8 {
				if s := take(t, src, Split(split), i); s.Tokens[1] != int32(split+1) {
					t.Errorf("%v: sample %d of split %d is %v", set, i, split, s.Tokens)
				}
			}
		}
		want := `1 beside train`
		if !slices.Contains(set, "labels.csv") {
			want = `2 beside train`
		}
		if got := IgnoredFiles(src); got != want {
			t.Errorf("%v: ignored %q", set, got)
		}
	}
	for want, more := range map[string]string{
		"x.fa lies in the folder of a split":                              "train/x.fa",
		`class "c" is not among those to learn from, ["a" "b"]`:           "test/c/x.fa",
		`hold the same split; one is needed`:                              "valid/a/x.fa",
		`as: windows of a divided folder need its folders train, valid a`: "",
	} {
		set := []string{"data", dir}
		if more == "" {
			delete(files, "val/a/0.fa")
			for i := range 8 {
				delete(files, fmt.Sprintf("val/%c/%d.fa", "ab"[i%2], i))
			}
			set = []string{"data", folderOf(t, files), "as", "windows", "length", "12"}
		} else {
			with := map[string][]byte{more: []byte(">0 kind=k0\nAC\n")}
			for split := range letters {
				with[split+"/a/1.fa"], with[split+"/b/1.fa"] = []byte(">0 kind=k0\nAC\n"), []byte(">1 kind=k1\nAC\n")
			}
			set[1] = folderOf(t, with)
		}
		if _, err := Open("fasta", Options{Settings: pairs(set)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %s", more, err, want)
		}
	}
	// A folder train alone divides nothing.
	src := openSource(t, "fasta", Options{Seed: 1}, "data", textFASTA(t), "label", "folder")
	if c := src.Spec().Count; c[Train] == 40 || c[0]+c[1]+c[2] != 40 || !slices.Equal(src.(ClassNamer).ClassNames(), []string{"bus", "train"}) {
		t.Errorf("%v samples of %q", c, src.(ClassNamer).ClassNames())
	}
}

// textFASTA writes 20 records of each of the classes train and bus.
func textFASTA(t *testing.T) string {
	files := map[string][]byte{}
	for i := range 20 {
		files[fmt.Sprintf("train/%d.fa", i)], files[fmt.Sprintf("bus/%d.fa", i)] = []byte(">x\nAC\n"), []byte(">y\nGT\n")
	}
	return folderOf(t, files)
}
