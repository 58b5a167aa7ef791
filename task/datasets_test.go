package task

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image/color"
	"math"
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

func TestSeriesFilesAreReadAndMalformedOnesRefused(t *testing.T) {
	const head = "@problemName p\n@timeStamps false\n@classLabel true off on\n@data\n"
	train, test := head, head
	for i := range 12 {
		line := fmt.Sprintf("%d,%d,?:7,8,9:%s\n", i, 10+i, []string{"off", "on"}[i%2])
		train += line
		test += strings.Replace(line, "9", "9.5", 1)
	}
	files := func(train, test string) map[string][]byte {
		return map[string][]byte{"acsf1/ACSF1_TRAIN.ts": []byte(train), "acsf1/ACSF1_TEST.ts": []byte(test)}
	}
	src := openSource(t, "acsf1", Options{Folder: folderOf(t, files(train, test))})
	holds(t, src)
	if s := src.Spec(); s.Count != [3]int{12, 0, 12} || s.Channels != 2 || s.Length != 3 || s.Classes != 2 {
		t.Errorf("%+v", s)
	}
	// Channels of a moment follow each other, and what is missing is 0.
	if s := take(t, src, Train, 3); s.Class != 1 || fmt.Sprint(s.Values) != "[3 7 13 8 0 9]" {
		t.Errorf("class %d, values %v", s.Class, s.Values)
	}
	list, err := src.Baselines(12)
	if err != nil || len(list) != 2 || list[0].Score != 0.5 || list[1].Score != 1 {
		t.Errorf("baselines %v, %v", list, err)
	}
	for want, f := range map[string]map[string][]byte{
		`its classes are ["yes" "no"], those to learn from ["off" "on"]`: files(train, "@classLabel true yes no\n@data\n1:2:yes\n"),
		"case 0 has 1 channels, the first has 2":                         files(train, "@classLabel true off on\n@data\n1:on\n"),
		"case 1 has channels of 2 and 1 values":                          files("@classLabel true off on\n@data\n1:2:on\n1,2:3:on\n", test),
		"ACSF1_TEST.ts":                                                  {"acsf1/ACSF1_TRAIN.ts": []byte(train)},
	} {
		if err := opens(t, "acsf1", f, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

// electrocardiogram returns the files of a record of two leads. The first lead is high at each
// beat, every 50 samples.
func electrocardiogram(samples int) map[string][]byte {
	var data, marks []byte
	for i := range samples {
		lead := int16(i % 7)
		if i%50 == 0 {
			lead = 900
		}
		data = binary.LittleEndian.AppendUint16(data, uint16(lead))
		data = binary.LittleEndian.AppendUint16(data, uint16(-i%90))
	}
	const beat, end, change = 1 << 10, 0, 14 << 10 // codes in the upper six bits
	for at := 50; at < samples; at += 50 {
		marks = binary.LittleEndian.AppendUint16(marks, beat|50)
	}
	marks = binary.LittleEndian.AppendUint16(marks, change|1)
	marks = binary.LittleEndian.AppendUint16(marks, end)
	head := fmt.Sprintf("7 2 360 %d\n7.dat 16 200 11 0\n7.dat 16 100 11 0\n", samples)
	return map[string][]byte{"ecg/7.hea": []byte(head), "ecg/7.dat": data, "ecg/7.atr": marks}
}

func TestSamplesNearBeatsAreLabelled(t *testing.T) {
	set := map[string]string{"record": "7", "length": "40", "near": "3"}
	folder := folderOf(t, electrocardiogram(2000))
	src := openSource(t, "ecg", Options{Folder: folder, Seed: 5}, "record", "7", "length", "40", "near", "3")
	holds(t, src)
	if s := src.Spec(); s.Count != [3]int{Endless, 5, 5} || s.Channels != 2 || s.Classes != 2 {
		t.Errorf("%+v", s)
	}
	// Window 2 of the last tenth begins at sample 1880: a beat is at 1900.
	s := take(t, src, Test, 2)
	for i, label := range s.Labels {
		if near := i >= 17 && i <= 23; near != (label == 1) {
			t.Errorf("sample %d has label %d", 1880+i, label)
		}
	}
	if s.Values[40] != 900./200 || s.Values[41] != float32(-(1900%90))/100 {
		t.Errorf("values %v", s.Values[40:42])
	}
	for _, c := range []struct {
		change func(map[string][]byte, map[string]string)
		want   string
	}{
		{func(_ map[string][]byte, set map[string]string) { set["length"] = "201" }, "length: a window has 201 samples, a tenth of the record 200"},
		{func(_ map[string][]byte, set map[string]string) { set["length"] = "0" }, "length: "},
		{func(_ map[string][]byte, set map[string]string) { set["near"] = "-1" }, "near: "},
		{func(_ map[string][]byte, set map[string]string) { set["record"] = "8" }, "8.hea"},
		{func(f map[string][]byte, _ map[string]string) { delete(f, "ecg/7.atr") }, "7.atr"},
		{func(f map[string][]byte, _ map[string]string) { delete(f, "ecg/7.dat") }, "7.dat"},
		{func(f map[string][]byte, _ map[string]string) {
			f["ecg/7.atr"] = electrocardiogram(3000)["ecg/7.atr"]
		}, "a beat is at sample 2000 of 2000"},
	} {
		files, with := electrocardiogram(2000), map[string]string{}
		for k, v := range set {
			with[k] = v
		}
		c.change(files, with)
		if err := opens(t, "ecg", files, with); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %v, want %q", err, c.want)
		}
	}
}

func TestForecastTargetsFollowInputs(t *testing.T) {
	const rows = 8640 + 2*2880
	table := func(rows int, at func(r int) (a, b float64)) []byte {
		var b strings.Builder
		b.WriteString("date,up,day\n")
		for r := range rows {
			x, y := at(r)
			fmt.Fprintf(&b, "2016-07-01 00:00:00,%g,%g\n", x, y)
		}
		return []byte(b.String())
	}
	day := func(r int) (float64, float64) { return float64(r), float64(r % 24) }
	src := openSource(t, "ett", Options{Folder: folderOf(t, map[string][]byte{"ett/ETTh1.csv": table(rows+9, day)})}, "input", "48", "horizon", "5")
	holds(t, src)
	if s := src.Spec(); s.Count != [3]int{8640 - 48 - 5 + 1, 2880 - 5 + 1, 2880 - 5 + 1} || s.Channels != 2 || s.Outputs != 10 {
		t.Errorf("%+v", s)
	}
	// What is to be judged by is forecast from the hours before it.
	s := take(t, src, Test, 0)
	mean, deviation := (8640.-1)/2, math.Sqrt((8640.*8640-1)/12)
	for i, x := range []float32{s.Values[94], s.Targets[0]} {
		if want := (float64(8640+2880-1+i) - mean) / deviation; math.Abs(float64(x)-want) > 1e-6 {
			t.Errorf("%d: %g, want %g", i, x, want)
		}
	}
	list, err := src.Baselines(50)
	if err != nil || len(list) != 3 || list[2].Name != "the last day" || list[2].Score > list[1].Score {
		t.Errorf("baselines %v, %v", list, err)
	}
	for want, x := range map[string]struct {
		rows int
		at   func(int) (float64, float64)
		set  map[string]string
	}{
		"it has 20 rows, 14400 are needed":            {20, day, nil},
		"day: it is 3 in all of the first 8640 rows":  {rows, func(r int) (float64, float64) { return float64(r), 3 }, nil},
		"horizon: it is 2881, 1 to 2880 are possible": {rows, day, map[string]string{"horizon": "2881"}},
		"input: it is 8640, 1 to 8544 are possible":   {rows, day, map[string]string{"input": "8640"}},
	} {
		if err := opens(t, "ett", map[string][]byte{"ett/ETTh1.csv": table(x.rows, x.at)}, x.set); err == nil || !strings.Contains(err.Error(), strings.Split(want, ",")[0]) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
	if err := opens(t, "ett", nil, nil); !errors.Is(err, ErrNoData) {
		t.Errorf("no file: %v", err)
	}
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
	list, err := a.Baselines(36)
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
