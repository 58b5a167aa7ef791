package task

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/rng"
)

// opens returns the error of opening a task on files.
func opens(t *testing.T, name string, files map[string][]byte, set map[string]string) error {
	t.Helper()
	_, err := Open(name, Options{Folder: folderOf(t, files), Settings: set})
	return err
}

// Lists of reviews and the folders of the archive give the same samples.
func TestReviewsOfBothForms(t *testing.T) {
	lists, archive := map[string][]byte{}, map[string][]byte{}
	for _, part := range []string{"train", "test"} {
		var list, films strings.Builder
		for i := range 20 {
			fmt.Fprintf(&films, "http://films/title/tt%07d/usercomments\n", i)
			for class, name := range []string{"neg", "pos"} {
				text := fmt.Sprintf("%s %s film %d", part, []string{"dull", "fine"}[class], i)
				archive[fmt.Sprintf("imdb/aclImdb/%s/%s/%d_7.txt", part, name, i)] = []byte(text)
			}
			for _, class := range []int{1, 0} { // positive first, as in the archive
				fmt.Fprintf(&list, "%d\t%d_7\ttt%07d\t%s %s film %d\n", class, i, i, part, []string{"dull", "fine"}[class], i)
			}
		}
		lists["imdb/imdb_"+part+".tsv"] = []byte(list.String())
		for _, name := range []string{"neg", "pos"} {
			archive["imdb/aclImdb/"+part+"/urls_"+name+".txt"] = []byte(films.String())
		}
	}
	a := openSource(t, "text", Options{Folder: folderOf(t, lists)}, "length", "12")
	b := openSource(t, "text", Options{Folder: folderOf(t, archive)}, "length", "12")
	holds(t, a)
	holds(t, b)
	if s := a.Spec(); s.Count != [3]int{36, 4, 40} || b.Spec().Count != s.Count || s.Length != 12 {
		t.Errorf("%+v and %+v", s, b.Spec())
	}
	for split := Train; split <= Test; split++ {
		for i := range a.Spec().Count[split] {
			x, y := take(t, a, split, i), take(t, b, split, i)
			if !equal(&x, &y) {
				t.Fatalf("%v %d: %v and %v", split, i, x, y)
			}
		}
	}
	if s := take(t, a, Train, 0); s.Class != 1 || s.Tokens[0] != 't'+1 || len(s.Tokens) != 12 {
		t.Errorf("%+v", s)
	}
	whole := openSource(t, "text", Options{Folder: folderOf(t, lists)}).(WindowDrawer)
	classes := map[string]int32{}
	for i := range 36 {
		s := take(t, whole, Train, i)
		classes[string(reviewBytes(&s))] = s.Class
	}
	key, begun, films := rng.New(1), map[string]bool{}, map[string]bool{}
	var s Sample
	for i := range 1000 {
		if err := whole.DrawWindow(&s, 15, key, uint64(i)); err != nil {
			t.Fatal(err)
		}
		part, found := string(reviewBytes(&s)), false
		for text, class := range classes {
			if strings.Contains(text, part) && class == s.Class {
				found, films[text] = true, true
			}
		}
		if len(part) != 15 || !found {
			t.Fatalf("window %d: %q of class %d is no part of a review", i, part, s.Class)
		}
		begun[part[:3]] = true
	}
	if len(begun) < 3 || len(films) != len(classes) {
		t.Errorf("windows begin with %v, in %d of %d reviews", begun, len(films), len(classes))
	}
	for _, n := range []int{0, 13} {
		if err := a.(WindowDrawer).DrawWindow(&s, n, key, 0); err == nil || !strings.Contains(err.Error(), "1 to 12") {
			t.Errorf("window of %d bytes: error %v", n, err)
		}
	}
	list, err := Baselines(a, 36)
	if err != nil || list[0].Score != 0.5 || list[1].Score != 1 {
		t.Errorf("baselines %v, %v: a word tells all", list, err)
	}
	for _, without := range []string{"imdb/imdb_train.tsv", "imdb/imdb_test.tsv"} {
		files := map[string][]byte{}
		for name, text := range lists {
			if name != without {
				files[name] = text
			}
		}
		if err := opens(t, "text", files, nil); !errors.Is(err, ErrNoData) {
			t.Errorf("without %s: %v", without, err)
		}
	}
	if err := opens(t, "text", lists, map[string]string{"length": "0"}); err == nil || !strings.Contains(err.Error(), "length: it is 0") {
		t.Errorf("no length: %v", err)
	}
}

// reviewBytes returns the bytes of a sample of Reviews.
func reviewBytes(s *Sample) (text []byte) {
	for _, token := range s.Tokens {
		text = append(text, byte(token-1))
	}
	return text
}

// Files written in the arena's format are read as the same samples. Writing ends at the first
// error of each.
func TestWrittenFilesAreRead(t *testing.T) {
	made := openSource(t, "listops", Options{Seed: 3}, "above", "5", "below", "60").(*ListOps)
	dir, enough := t.TempDir(), errors.New("enough")
	for split, name := range []string{"train", "val", "test"} {
		var b bytes.Buffer
		told := 0
		if err := WriteListOps(&b, made, Split(split), 8, func(i int) error { told += i; return nil }); err != nil || told != 28 {
			t.Fatal(told, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "basic_"+name+".tsv"), b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	read, err := OpenListOps(dir)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, read)
	for split := Train; split <= Test; split++ {
		for i := range 8 {
			x, y := take(t, made, split, i), take(t, read, split, i)
			if !equal(&x, &y) {
				t.Errorf("%v %d: %v and %v", split, i, x, y)
			}
		}
	}
	if err := WriteListOps(&bytes.Buffer{}, made, Train, 8, func(i int) error { return map[int]error{2: enough}[i] }); err != enough {
		t.Errorf("error is %v", err)
	}
	for want, row := range map[string]string{"FIRST and LAST": "( ( [FIRST 1 ) ] )\t1\r\n", "row 0": "( ( [MAX 1 )\t1\r\n"} {
		if err := os.WriteFile(filepath.Join(dir, "basic_val.tsv"), []byte("Source\tTarget\r\n"+row), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenListOps(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}

	paths, err := NewPathfinder(14, 3)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WritePathfinder(&b, paths, [3]int{8, 1, 1}, nil); err != nil || b.Len() != 10*1025 {
		t.Fatal(b.Len(), err)
	}
	dir = folderOf(t, map[string][]byte{"pathfinder32/contour14.bin": b.Bytes()})
	again := openSource(t, "pathfinder", Options{Folder: dir})
	for split, n := range [3]int{8, 1, 1} {
		for i := range n {
			x, y := take(t, paths, Split(split), i), take(t, again, Split(split), i)
			if !equal(&x, &y) {
				t.Errorf("%v %d differs", Split(split), i)
			}
		}
	}
	p, err := again.(PictureSource).Picture(Test, 0)
	if err != nil || p.Height != 32 || p.Width != 32 || p.Channels != 1 || int32(p.Pixels[700]) != take(t, again, Test, 0).Tokens[700] {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := again.(PictureSource).Picture(Test, 1); err == nil {
		t.Error("there is no second picture")
	}
	if err := WritePathfinder(&b, paths, [3]int{8, 1, 1}, func(i int) error { return map[int]error{2: enough}[i] }); err != enough {
		t.Errorf("error is %v", err)
	}
}

// A sheet has one image in each row. Sheets between the first and the last may be missing.
func TestSheetsOfImagesMayBeMissing(t *testing.T) {
	labels := bytes.Repeat([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 5100)
	sheet := func(red byte) []byte {
		return pngOf(t, 1024, 1000, func(x, y int) color.Color { return color.NRGBA{red, byte(y), byte(x), 255} })
	}
	files := map[string][]byte{"cifar10/labels_51000.bin": labels, "cifar10/cifar10_batch_0.png": sheet(10), "cifar10/cifar10_batch_50.png": sheet(20)}
	src := openSource(t, "cifar-gen", Options{Folder: folderOf(t, files)})
	spec := src.Spec()
	if spec.Count[Train]+spec.Count[Valid] != 1000 || spec.Count[Test] != 1000 || spec.Length != 3072 {
		t.Errorf("%+v", spec)
	}
	s := take(t, src, Test, 7)
	if fmt.Sprint(s.Targets[3:6]) != "[20 7 1]" {
		t.Errorf("targets %v", s.Targets[:6])
	}
	for _, without := range []string{"cifar10/labels_51000.bin", "cifar10/cifar10_batch_0.png", "cifar10/cifar10_batch_50.png"} {
		some := map[string][]byte{}
		for name, b := range files {
			if name != without {
				some[name] = b
			}
		}
		if err := opens(t, "cifar-gen", some, nil); !errors.Is(err, ErrNoData) {
			t.Errorf("without %s: %v", without, err)
		}
	}
	files["cifar10/labels_51000.bin"] = labels[:50000]
	if err := opens(t, "image", files, nil); err == nil || !strings.Contains(err.Error(), "labels_51000.bin") {
		t.Errorf("too few labels: %v", err)
	}
}

func TestPictureIsTheSquareOfTheSample(t *testing.T) {
	files := map[string][]byte{}
	for i := range 20 {
		files[fmt.Sprintf("%s/%d.png", []string{"a", "b"}[i%2], i)] = pngOf(t, 8, 8, func(x, y int) color.Color { return color.NRGBA{byte(10 * i), 0, 9, 255} })
	}
	src := openSource(t, "picture", Options{Seed: 1}, "data", folderOf(t, files), "side", "4")
	p, err := src.(PictureSource).Picture(Train, 0)
	if err != nil || p.Height != 4 || p.Width != 4 || p.Channels != 1 || len(p.Pixels) != 16 {
		t.Fatalf("%+v, %v", p, err)
	}
	for i, token := range take(t, src, Train, 0).Tokens {
		if int32(p.Pixels[i]) != token {
			t.Errorf("pixel %d is %d, its token %d", i, p.Pixels[i], token)
		}
	}
	if _, err := src.(PictureSource).Picture(Train, 99); err == nil {
		t.Error("there is no picture 99")
	}
}

func TestCatalogueIsACopyAndLookupFindsRows(t *testing.T) {
	rows := Rows()
	for _, r := range rows {
		got, err := Lookup(r.Name)
		if err != nil || got.Name != r.Name || r.IsText() != (r.Name == CharLM || r.Name == ByteLM) {
			t.Errorf("%s: %+v, %v", r.Name, got, err)
		}
	}
	rows[0].Name = "changed"
	if Rows()[0].Name == "changed" {
		t.Error("the catalogue can be written to")
	}
	if _, err := Lookup("none"); err == nil || !strings.Contains(err.Error(), CharLM) {
		t.Errorf("error is %v", err)
	}
}
