package task

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unsafe"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/internal/token"
)

// Tasks of the real data sets keep the contract of Source, and their baselines have plausible
// scores. Known values: n-gram models of Tiny Shakespeare (3.347 and 2.484 nats).
// The files of each data set are read once, and with -long in every form that tasks give them.
func TestRealDataSetsHaveKnownBaselines(t *testing.T) {
	folder := sharedData(t)
	for _, c := range []struct {
		args  []string
		count [3]int
		n     int // samples of the baselines
		low   []float64
		high  []float64
	}{
		{[]string{"mnist"}, [3]int{54000, 6000, 10000}, 3000, []float64{0.09, 0.7}, []float64{0.14, 0.86}},
		{[]string{"mnist", "as", "patches"}, [3]int{54000, 6000, 10000}, 500, nil, nil},
		{[]string{"image"}, [3]int{7200, 800, 1000}, 8000, []float64{0.08, 0.2}, []float64{0.12, 0.3}},
		{[]string{"mnist-gen"}, [3]int{54000, 6000, 10000}, 500, nil, nil},
		{[]string{"mnist-gen", "side", "7"}, [3]int{54000, 6000, 10000}, 500, nil, nil},
		{[]string{"cifar-gen"}, [3]int{7200, 800, 1000}, 300, nil, nil},
		{[]string{"text"}, [3]int{9000, 1000, 2500}, 9000, []float64{0.49, 0.75}, []float64{0.51, 0.9}},
		{[]string{"films"}, [3]int{Endless, Endless, Endless}, 1000, []float64{0.45, 0.55}, []float64{0.55, 0.95}},
		{[]string{"genome"}, [3]int{Endless, Endless, Endless}, 500, []float64{0.2, 0.6}, []float64{0.35, 1}},
		{[]string{"charlm", "data", "tinyshakespeare", "length", "256"}, [3]int{Endless, 436, 0}, 436, []float64{3.342, 2.475, 1.9}, []float64{3.352, 2.495, 2.2}},
		{[]string{"bytelm", "data", "enwik8", "length", "1024"}, [3]int{Endless, 196, 196}, 196, []float64{3, 2, 1.5}, []float64{4, 3, 2.5}},
		{[]string{"pathfinder"}, [3]int{3200, 400, 400}, 3200, []float64{0.45, 0.45, 0.45}, []float64{0.56, 0.58, 0.58}},
		{[]string{"pathfinder", "contour", "6"}, [3]int{1600, 200, 200}, 100, nil, nil},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			if c.low == nil && !suite.IsLong() {
				t.Skip("runs with -long")
			}
			src := openSource(t, c.args[0], Options{Folder: folder, Seed: 1}, c.args[1:]...)
			if spec := src.Spec(); spec.Name != c.args[0] || spec.Count != c.count {
				t.Errorf("%s has %v samples, want %v", spec.Name, spec.Count, c.count)
			}
			holds(t, src)
			list, err := Baselines(src, c.n)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(list)
			for i := range c.low {
				if list[i].Score < c.low[i] || list[i].Score > c.high[i] {
					t.Errorf("%s scores %.3f, %.3f to %.3f is expected", list[i].Name, list[i].Score, c.low[i], c.high[i])
				}
			}
		})
	}
}

// folderOf writes files into a new folder.
func folderOf(t testing.TB, files map[string][]byte) string {
	t.Helper()
	text := map[string]string{}
	for name, b := range files {
		text[name] = string(b)
	}
	dir := t.TempDir()
	for name, s := range text {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func idx(shape []int, data []byte) []byte {
	b := []byte{0, 0, 8, byte(len(shape))}
	for _, n := range shape {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	return append(b, data...)
}

func TestMNISTPatchesAreRowByRow(t *testing.T) {
	pixels := make([]byte, 20*784)
	for i := range pixels {
		pixels[i] = byte(i)
	}
	labels := make([]byte, 20)
	for i := range labels {
		labels[i] = byte(i % 10)
	}
	files := map[string][]byte{
		"mnist/train-images-idx3-ubyte": idx([]int{20, 28, 28}, pixels), "mnist/train-labels-idx1-ubyte": idx([]int{20}, labels),
		"mnist/t10k-images-idx3-ubyte": idx([]int{2, 28, 28}, pixels[:2*784]), "mnist/t10k-labels-idx1-ubyte": idx([]int{2}, labels[:2]),
	}
	dir := folderOf(t, files)
	src := openSource(t, "mnist", Options{Folder: dir}, "as", "patches", "patch", "7")
	holds(t, src)
	if spec := src.Spec(); spec.Length != 16 || spec.Channels != 49 || spec.Count != [3]int{18, 2, 2} {
		t.Errorf("%+v", spec)
	}
	// Patch 5 is the second of the second row: its pixel (1, 2) is (8, 9).
	s := take(t, src, Valid, 1)
	if got, want := s.Values[5*49+7+2], float32((19*784+8*28+9)%256)/255; got != want || s.Class != 9 {
		t.Errorf("%g, want %g; class %d", got, want, s.Class)
	}
	if p, err := src.(PictureSource).Picture(Valid, 1); err != nil || p.Height != 28 || p.Len() != 1 || p.Pixels[8*28+9] != byte((19*784+8*28+9)%256) {
		t.Errorf("picture %+v, %v", p, err)
	}
	if _, err := src.(PictureSource).Picture(Valid, 2); err == nil {
		t.Error("a picture that is not there")
	}
	few := openSource(t, "mnist", Options{Folder: dir}, "learn", "5")
	if spec := few.Spec(); spec.Count != [3]int{5, 2, 2} {
		t.Errorf("%+v", spec)
	}
	if _, err := Open("mnist", Options{Folder: dir, Settings: map[string]string{"learn": "19"}}); err == nil || !strings.Contains(err.Error(), "learn: it is 19, 0 to 18 are possible") {
		t.Error(err)
	}
	files["mnist/t10k-labels-idx1-ubyte"] = idx([]int{3}, labels[:3])
	if _, err := OpenMNIST(filepath.Join(folderOf(t, files), "mnist"), 0); err == nil || !strings.Contains(err.Error(), "[2 28 28] and labels [3]") {
		t.Error(err)
	}
	files["mnist/t10k-labels-idx1-ubyte"] = idx([]int{2}, []byte{1, 10})
	if _, err := OpenMNIST(filepath.Join(folderOf(t, files), "mnist"), 0); err == nil || !strings.Contains(err.Error(), "label 1 is 10") {
		t.Error(err)
	}
}

func TestBatchesOfCIFARBecomeGrey(t *testing.T) {
	files := map[string][]byte{}
	for b := range 6 {
		var batch []byte
		for i := range 10 {
			batch = append(batch, byte(i))
			for c := range 3 {
				batch = append(batch, bytes.Repeat([]byte{byte(40*c + 10*b + i)}, 1024)...)
			}
		}
		name := fmt.Sprintf("cifar10/cifar-10-batches-bin/data_batch_%d.bin", b+1)
		if b == 5 {
			name = "cifar10/cifar-10-batches-bin/test_batch.bin"
		}
		files[name] = batch
	}
	src := openSource(t, "image", Options{Folder: folderOf(t, files)})
	holds(t, src)
	if got := src.Spec().Count; got != [3]int{45, 5, 10} {
		t.Errorf("samples %v", got)
	}
	s := take(t, src, Test, 3)
	want := int32(math.Floor(255.5 / 255 * (0.2989*53 + 0.5870*93 + 0.1140*133)))
	if s.Tokens[1023] != want || s.Class != 3 {
		t.Errorf("grey %d, want %d, class %d", s.Tokens[1023], want, s.Class)
	}
	// White stays below 256.
	if GreyLevel(255, 255, 255) != 255 || GreyLevel(0, 0, 0) != 0 {
		t.Error(GreyLevel(255, 255, 255))
	}
}

// Tokens are one level behind the targets, the channels of a pixel are adjacent, and means of
// squares are rounded.
func TestPixelTokensTrailTargets(t *testing.T) {
	pixels := make([]byte, 20*784)
	for i := range pixels {
		pixels[i] = byte(i * i / 7)
	}
	src := openSource(t, "mnist-gen", Options{Folder: folderOf(t, map[string][]byte{
		"mnist/train-images-idx3-ubyte": idx([]int{20, 28, 28}, pixels), "mnist/train-labels-idx1-ubyte": idx([]int{20}, make([]byte, 20)),
		"mnist/t10k-images-idx3-ubyte": idx([]int{2, 28, 28}, pixels[:2*784]), "mnist/t10k-labels-idx1-ubyte": idx([]int{2}, make([]byte, 2)),
	})}, "side", "14")
	holds(t, src)
	s := take(t, src, Test, 1)
	at := 784 + 2*28*3 + 2*5 // row 3, column 5 of squares of 2×2
	mean := (int(pixels[at]) + int(pixels[at+1]) + int(pixels[at+28]) + int(pixels[at+29]) + 2) / 4
	if place := 14*3 + 5; s.Targets[place] != float32(mean) || s.Tokens[place+1] != int32(mean) || s.Tokens[0] != PixelStart {
		t.Errorf("level %v, the token after it %d, the first %d; want %d, %d", s.Targets[place], s.Tokens[place+1], s.Tokens[0], mean, PixelStart)
	}
}

// Known values for all levels of MNIST are 8, 1.967, 1.689 and 1.261 bits. Those of a hundredth of the images were
// measured.
func TestLevelsOfMNISTHaveKnownBits(t *testing.T) {
	n, want := 600, []float64{8, 1.8979, 1.9427, 1.3554}
	if suite.IsLong() {
		n, want = 60000, []float64{8, 1.967, 1.689, 1.261}
	}
	list, err := Baselines(openSource(t, "mnist-gen", Options{Folder: sharedData(t)}), n)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range want {
		if got := list[i].Score; math.Abs(got-want) > 0.0006 {
			t.Errorf("%s scores %v, want %v", list[i].Name, got, want)
		}
	}
}

// Where the position determines every level, only the cost of the initial counts remains.
func TestHistogramByPositionPredictsFixedLevels(t *testing.T) {
	m := &dataset.Images{Height: 4, Width: 4, Channels: 3, Labels: make([]byte, 20)}
	for i := range 20 * 48 {
		m.Pixels = append(m.Pixels, byte(5*(i%48)))
	}
	src := &Pixels{images: images{train: m, test: m}, name: "x", height: 4, width: 4, channels: 3}
	list, err := Baselines(src, 20)
	if err != nil {
		t.Fatal(err)
	}
	place := -math.Log2((18 + 0.01) / (18 + 2.56)) // of the 18 that are not there to choose by
	for i, want := range []float64{8, math.Log2(48), place} {
		if got := list[i].Score; math.Abs(got-want) > 0.01 {
			t.Errorf("%s scores %v, want %v", list[i].Name, got, want)
		}
	}
	// Left, above and above to the right of the green value of pixel (1,2), each of 32 levels.
	x := make([]float32, 48)
	x[3*(4*1+1)+1], x[3*(4*0+2)+1], x[3*(4*0+3)+1] = 1, 255, 33
	if got, want := src.neighbourKey(x, 3*(4*1+2)+1), (1*9+8)*9+2; got != want {
		t.Errorf("neighbours %d, want %d", got, want)
	}
	x = []float32{255, 255, 255}
	if got := src.neighbourKey(append(x, make([]float32, 45)...), 0); got != 0 {
		t.Errorf("neighbours of the first level are %d", got)
	}
}

func TestRetrievalPairsAreCutAndLabelled(t *testing.T) {
	const row = "1.0\ta\tb\tone two three\ttwo one\n0\tc\td\tred\tblue\n"
	dir := folderOf(t, map[string][]byte{
		"aan/new_aan_pairs.train.tsv": []byte(row), "aan/new_aan_pairs.eval.tsv": []byte(row), "aan/new_aan_pairs.test.tsv": []byte(row),
	})
	src := openSource(t, "retrieval", Options{Folder: dir}, "length", "7")
	holds(t, src)
	s := take(t, src, Test, 0)
	if s.Cut != 7 || len(s.Tokens) != 14 || s.Class != 1 || s.Tokens[7] != 't'+1 {
		t.Errorf("%+v", s)
	}
	list, err := Baselines(src, 2)
	if err != nil || list[1].Score != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// Training and validation films are disjoint, and both reviews of class 1 rate the same film.
func TestFilmsOfSplitsAreDisjoint(t *testing.T) {
	var train, test strings.Builder
	for film := range 40 {
		for r := range 2 {
			fmt.Fprintf(&train, "%d\t%d_%d\ttt%d\tfilm %02d review %d\n", r, r, r, film, film, r)
			fmt.Fprintf(&test, "%d\t%d_%d\tte%d\ttest %02d review %d\n", r, r, r, film, film, r)
		}
	}
	dir := folderOf(t, map[string][]byte{"imdb/imdb_train.tsv": []byte(train.String()), "imdb/imdb_test.tsv": []byte(test.String())})
	src := openSource(t, "films", Options{Folder: dir})
	holds(t, src)
	seen := [3]map[string]bool{{}, {}, {}}
	match := 0
	for split := Train; split <= Test; split++ {
		for i := range 300 {
			s := take(t, src, split, i)
			text := func(tokens []int32) string {
				var b []byte
				for _, x := range tokens {
					b = append(b, byte(x-1))
				}
				return string(b)
			}
			a, b := text(s.Tokens[:s.Cut]), text(s.Tokens[s.Cut:])
			if a == b || (a[:7] == b[:7]) != (s.Class == 1) {
				t.Fatalf("%q, %q: class %d", a, b, s.Class)
			}
			seen[split][a[:7]], seen[split][b[:7]] = true, true
			match += int(s.Class)
		}
	}
	for film := range seen[Valid] {
		if seen[Train][film] {
			t.Errorf("%s is to learn from and to choose by", film)
		}
	}
	if len(seen[Train]) != 36 || len(seen[Valid]) != 4 || len(seen[Test]) != 40 || match < 380 || match > 520 {
		t.Errorf("%d, %d and %d films, %d of 900 match", len(seen[0]), len(seen[1]), len(seen[2]), match)
	}
}

func TestGenomeHoldsChromosomesOut(t *testing.T) {
	var one, many strings.Builder
	one.WriteString(">a\n" + strings.Repeat("A", 80) + strings.Repeat("C", 10) + strings.Repeat("G", 10) + "\n")
	for i, c := range "ACGT" {
		fmt.Fprintf(&many, ">%c\n%s\n", c, strings.Repeat(string(c), 50-10*i))
	}
	files := map[string][]byte{"genome/" + genomes[0]: []byte(one.String())}
	for _, name := range genomes[1:] {
		files["genome/"+name] = []byte(many.String())
	}
	src := openSource(t, "genome", Options{Folder: folderOf(t, files)}, "length", "8")
	holds(t, src)
	// Species 0 by place, the others: longest A and shortest T to learn from, G to
	// choose by, C to be judged by.
	want := map[Split][2]string{Train: {"A", "AT"}, Valid: {"C", "G"}, Test: {"G", "C"}}
	for split, letters := range want {
		var seen [2]map[byte]bool
		seen[0], seen[1] = map[byte]bool{}, map[byte]bool{}
		for i := range 200 {
			s := take(t, src, split, i)
			for _, x := range s.Tokens {
				seen[min(s.Class, 1)]["?ACGTN"[x]] = true
			}
		}
		for k, set := range seen {
			for c := range set {
				if !strings.ContainsRune(letters[k], rune(c)) || len(set) != len(letters[k]) {
					t.Errorf("%v: species %d has %c; %s is wanted", split, k, c, letters[k])
				}
			}
		}
	}
	files["genome/"+genomes[1]] = []byte(">a\nACGT\n")
	if _, err := OpenGenome(filepath.Join(folderOf(t, files), "genome"), 8, 0); err == nil || !strings.Contains(err.Error(), genomes[1]) {
		t.Error(err)
	}
}

func TestSoundsAverageChannels(t *testing.T) {
	le := binary.LittleEndian
	wav := func(channels int, data ...int16) []byte {
		f := le.AppendUint16([]byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00"), uint16(channels))
		f = le.AppendUint32(f, 8000)
		f = le.AppendUint32(f, uint32(16000*channels))
		f = le.AppendUint16(f, uint16(2*channels))
		f = append(f, "\x10\x00data"...)
		f = le.AppendUint32(f, uint32(2*len(data)))
		for _, x := range data {
			f = le.AppendUint16(f, uint16(x))
		}
		return f
	}
	dir := folderOf(t, map[string][]byte{
		"train/high/a.wav": wav(2, 1<<14, 0, 1<<14, 1<<14, 5, 6), "train/low/b.WAV": wav(1, -1<<14, -1<<13), "train/low/note.txt": []byte("x"),
		"test/low/c.wav": wav(1, 7), "test/.hidden/d.wav": wav(1, 7),
	})
	src, err := OpenSounds(dir, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, src)
	if s := take(t, src, Train, 0); !slices.Equal(s.Values, []float32{0.25, 0.5}) || s.Class != 0 {
		t.Errorf("%+v", s)
	}
	if got := src.Spec().Count; got != [3]int{2, 0, 1} {
		t.Errorf("samples %v", got)
	}
	names := src.ClassNames()
	names[0] = "changed"
	if got := src.ClassNames(); !slices.Equal(got, []string{"high", "low"}) {
		t.Errorf("the classes are %q", got)
	}
	for want, dir := range map[string]string{
		"a folder is needed":               "",
		`class "other" is not among`:       folderOf(t, map[string][]byte{"train/a/x.wav": nil, "train/b/y.wav": nil, "valid/other/z.wav": nil}),
		"a folder for each of two classes": folderOf(t, map[string][]byte{"a/x.wav": nil}),
	} {
		if _, err := OpenSounds(dir, 2, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

func pngOf(t testing.TB, w, h int, at func(x, y int) color.Color) []byte {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		m.Set(i%w, i/w, at(i%w, i/w))
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPicturesOfAnySizeBecomeSquares(t *testing.T) {
	files := map[string][]byte{}
	for i := range 40 {
		for _, class := range []string{"cats", "dogs"} {
			files[fmt.Sprintf("%s/%d.png", class, i)] = pngOf(t, 3+i, 5, func(x, y int) color.Color {
				return color.NRGBA{byte(100 + i), byte(20 * len(class)), 60, 255}
			})
		}
	}
	dir := folderOf(t, files)
	src := openSource(t, "picture", Options{Seed: 4}, "data", dir, "side", "4")
	holds(t, src)
	count := src.Spec().Count
	if named, ok := src.(ClassNamer); !ok || !slices.Equal(named.ClassNames(), []string{"cats", "dogs"}) {
		t.Error("the classes do not have the names of their folders")
	}
	if count[0]+count[1]+count[2] != 80 || count[1] == 0 || count[2] == 0 || count[0] < 50 {
		t.Errorf("samples %v", count)
	}
	src = openSource(t, "picture", Options{Seed: 4}, "data", dir, "side", "4", "as", "patches", "patch", "2")
	holds(t, src)
	s := take(t, src, Train, 0)
	if len(s.Values) != 48 || s.Values[1] != 80./255 || s.Values[47] != 60./255 {
		t.Errorf("%v", s.Values)
	}
}

func TestResizedPixelIsTheMeanOfItsArea(t *testing.T) {
	p := &dataset.Picture{Height: 2, Width: 3, Pixels: []byte{0, 0, 0, 90, 90, 90, 30, 30, 30, 60, 60, 60, 0, 0, 0, 0, 0, 0}}
	// A square of one pixel is the mean of all; one of two shares the middle column.
	if got := resizePicture(p, 1); !bytes.Equal(got, []byte{30, 30, 30}) {
		t.Error(got)
	}
	if got := resizePicture(p, 2); got[0] != 30 || got[3] != 50 || got[6] != 40 || got[9] != 0 {
		t.Error(got)
	}
	if got := resizePicture(p, 6); got[0] != 0 || got[3*2] != 90 || got[3*35] != 0 || got[3*18] != 60 {
		t.Error(got)
	}
}

func TestOwnTextsAreReadFromAllFormats(t *testing.T) {
	var csv, jsonl, tags strings.Builder
	csv.WriteString("id,review,stars\n")
	tags.WriteString("text\tlabel\n")
	for i := range 60 {
		fmt.Fprintf(&csv, "%d,\"text, %d\",%d\n", i, i, i%3)
		fmt.Fprintf(&jsonl, "{\"text\": \"text %d\", \"label\": %t, \"more\": [1]}\n", i, i%2 == 0)
		fmt.Fprintf(&tags, "ab%d\thc%d\n", i, i)
	}
	dir := folderOf(t, map[string][]byte{
		"a.csv": []byte(csv.String()), "b.jsonl": []byte(jsonl.String()), "c.tsv": []byte(tags.String()),
		"texts/one/x.txt": []byte("first text"), "texts/two/y": []byte("second"), "texts/two/z": []byte("third"),
		"bad.jsonl": []byte("{\"text\": \"a\"}\n"), "worse.jsonl": []byte("{\"text\": \"a\", \"label\": [1]}\n"), "d.txt": []byte("id\treview\n1\tx\n"), "d.log": []byte("x"),
		"short.csv": []byte("text,label\nabc,ab\n"), "empty.csv": []byte("text,label\n,ab\n"), "word.csv": []byte("text,label\na,b\n"), "large.csv": []byte("text,label\na,1700000000\nb,1700000039\n"), "unlabelled.csv": []byte("text,label\na,b\n\nc,\n"),
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		set     []string
		kind    Kind
		classes int
		metric  Metric
	}{
		{[]string{"data", at("a.csv"), "text", "review", "label", "stars"}, Class, 3, Accuracy},
		{[]string{"data", at("a.csv"), "text", "review", "label", "stars", "target", "number"}, Regression, 0, MSE},
		{[]string{"data", at("b.jsonl")}, Class, 2, Accuracy},
		{[]string{"data", at("c.tsv"), "target", "bytes", "length", "3"}, Labels, 12, Accuracy},
		{[]string{"data", at("c.tsv"), "target", "bytes", "vocabulary", "bpe"}, Labels, 12, Accuracy},   // of the preset
		{[]string{"data", at("c.tsv"), "target", "bytes", "vocabulary", "words"}, Labels, 12, Accuracy}, // of earlier runs
		{[]string{"data", at("texts"), "length", "4"}, Class, 2, Accuracy},
	} {
		src := openSource(t, "file", Options{Seed: 3}, c.set...)
		if spec := src.Spec(); spec.Kind != c.kind || spec.Classes != c.classes || spec.Metric != c.metric {
			t.Errorf("%v: %+v", c.set, spec)
		}
		if src.Spec().Count[Test]+src.Spec().Count[Valid] > 0 {
			holds(t, src)
		}
	}
	model := &Tokens{Vocabulary: token.NewByteVocabulary(), Size: 256}
	openSource(t, "file", Options{Tokens: model}, "data", at("b.jsonl"), "vocabulary", "words") // of earlier runs
	s := take(t, openSource(t, "file", Options{}, "data", at("texts"), "length", "4"), Train, 0)
	if len(s.Tokens) > 4 {
		t.Errorf("%d tokens", len(s.Tokens))
	}
	for _, c := range []struct {
		want string
		set  []string
	}{
		{"no such file", []string{"data", at("none")}},
		{`line 1: it has no key "label"`, []string{"data", at("bad.jsonl")}},
		{"a string, a number or a truth value is needed", []string{"data", at("worse.jsonl")}},
		{`its name ends in ".log"`, []string{"data", at("d.log")}},
		{`column "text": there is none; there are ["id" "review"]`, []string{"data", at("d.txt")}},
		{`column "text": there is none; there are ["id" "review" "stars"]`, []string{"data", at("a.csv")}},
		{"the label has 2 bytes, the text 3", []string{"data", at("short.csv"), "target", "bytes"}},
		{"row 1 below the header: the text is empty", []string{"data", at("empty.csv")}},
		{`the label is "b", a finite number is needed`, []string{"data", at("word.csv"), "target", "number"}},
		{"label: float32 rounds 1.700000039e+09 to 1.7e+09", []string{"data", at("large.csv"), "target", "number"}},
		{"row 2 below the header: the label is empty", []string{"data", at("unlabelled.csv")}},
		{"the number of classes is 1, 2 are needed", []string{"data", at("word.csv")}},
		{`vocabulary: "words" is neither bpe nor bpe=N`, []string{"data", at("b.jsonl"), "vocabulary", "words"}},
		{"a folder says classes", []string{"data", at("texts"), "target", "number"}},
	} {
		o := Options{Settings: map[string]string{}}
		for i := 0; i < len(c.set); i += 2 {
			o.Settings[c.set[i]] = c.set[i+1]
		}
		if _, err := Open("file", o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error is %v", c.set, err)
		}
	}
}

func TestFilesOfTextsLoseTheirMark(t *testing.T) {
	dir := folderOf(t, map[string][]byte{"a": []byte("\ufeffabc"), "b": []byte("\ufeff")})
	for most, want := range map[int]string{2: "ab", math.MaxInt: "abc"} {
		own := ownText{path: filepath.Join(dir, "a")}
		if text, err := own.read(most); err != nil || string(text) != want {
			t.Errorf("%q, %v, want %q", text, err, want)
		}
	}
	if _, err := (&ownText{path: filepath.Join(dir, "b")}).read(2); err == nil || !strings.Contains(err.Error(), "it is empty") {
		t.Errorf("of a mark alone: error is %v", err)
	}
}

// Texts above the limit are drawn from all classes, whose samples lie in order.
func TestVocabularyIsLearnedFromAllClasses(t *testing.T) {
	var src OwnTexts
	for i := range 200 {
		src.parts[Train] = append(src.parts[Train], ownText{text: []byte(strings.Repeat(string("ab"[i/100]), 4))})
	}
	whole, err := src.sampleTexts(1000, 1)
	if want := strings.Repeat("aaaa\n", 100) + strings.Repeat("bbbb\n", 100); err != nil || string(whole) != want {
		t.Errorf("%d bytes, %v", len(whole), err)
	}
	part, err := src.sampleTexts(300, 1)
	if n := strings.Count(string(part), "b\n"); err != nil || len(part) != 305 || n < 15 || n > 46 {
		t.Errorf("%d bytes with %d texts of the last class, %v", len(part), n, err)
	}
}

// A file holds the same rows as lines, as a JSON array and in UTF-16.
func TestFormsOfAFileGiveTheSameTexts(t *testing.T) {
	utf16le := func(s string) string {
		b := []byte("\xff\xfe")
		for _, u := range utf16.Encode([]rune(s)) {
			b = append(b, byte(u), byte(u>>8))
		}
		return string(b)
	}
	const lines = "{\"text\": \"é 𝄞\", \"label\": 1}\n{\"text\": \"b\", \"label\": \"x\"}\n"
	const array = "[\n {\"text\": \"é 𝄞\",\n  \"label\": 1}, {\"text\": \"b\", \"label\": \"x\"}\n]\n"
	for _, c := range []struct{ name, content string }{
		{"a.jsonl", lines}, {"a.jsonl", array}, {"a.json", array}, {"a.json", lines}, {"a.jsonl", utf16le(lines)}, {"a.json", utf16le(array)},
		{"a.csv", "text,label\né 𝄞,1\nb,x\n"}, {"a.csv", "sep=;\r\ntext;label\r\né 𝄞;1\r\nb;x\r\n"}, {"a.csv", utf16le("text\tlabel\r\né 𝄞\t1\r\nb\tx\r\n")},
		{"a.tsv", utf16le("text\tlabel\né 𝄞\t1\nb\tx\n")},
	} {
		path := filepath.Join(folderOf(t, map[string][]byte{c.name: []byte(c.content)}), c.name)
		src, err := readOwnTexts(path, Class, ownColumns{text: "text", label: "label"}, splitter{seed: 1}, true)
		if err != nil {
			t.Errorf("%s %q: %v", c.name, c.content, err)
			continue
		}
		var got []string
		for _, part := range src.parts {
			for _, s := range part {
				got = append(got, string(s.text)+"="+src.classes[s.class])
			}
		}
		if slices.Sort(got); fmt.Sprint(got) != "[b=x é 𝄞=1]" {
			t.Errorf("%s %q: %q", c.name, c.content, got)
		}
	}
	folder := folderOf(t, map[string][]byte{"a/1.txt": []byte(utf16le("é 𝄞 one")), "b/2.txt": []byte("two")})
	src, err := readOwnTexts(folder, Class, ownColumns{}, splitter{seed: 1}, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range src.parts {
		for _, s := range part {
			if text, err := s.read(10); err != nil || string(text) != map[int32]string{0: "é 𝄞 on", 1: "two"}[s.class] {
				t.Errorf("class %d: %q, %v", s.class, text, err)
			}
		}
	}
	for _, path := range []string{folder, filepath.Join(folder, "a", "1.txt")} {
		c, err := ReadCorpus(path, true, false)
		if err != nil || !strings.HasPrefix(string(c.Text), "é 𝄞 one") || c.Skipped != 0 {
			t.Errorf("%s: %+v, %v", path, c, err)
		}
	}
	bytes := folderOf(t, map[string][]byte{"mp3": []byte("\xff\xfeab\x00\xd8\x00")})
	if c, err := ReadCorpus(filepath.Join(bytes, "mp3"), false, false); err != nil || len(c.Text) != 7 {
		t.Errorf("bytes that are no text: %+v, %v", c, err)
	}
}

// Labels that differ in the file are different classes.
func TestJSONLLabelsKeepTheirDigits(t *testing.T) {
	for labels, want := range map[string][]string{
		`9007199254740992 9007199254740993 1000000`: {"1000000", "9007199254740992", "9007199254740993"},
		`1e6 1000000 1000000.0 12345678901.0`:       {"1000000", "12345678901"},
		`1 1.0 0.50 5e-1 -3 1e-7 true "x" 1.5e300`:  {"-3", "0.5", "1", "1.5e+300", "1e-07", "true", "x"},
		`"\ufffd" "\uFFFD" "caf\u00e9" "caf\u00e8"`: {"caf\u00e8", "caf\u00e9", "\ufffd"},
	} {
		text := "\ufeff\n"
		for _, label := range strings.Fields(labels) {
			text += fmt.Sprintf("{\"text\": \"a\", \"label\": %s}\r\n", label)
		}
		src, err := readOwnTexts(filepath.Join(folderOf(t, map[string][]byte{"a.jsonl": []byte(text)}), "a.jsonl"), Class, ownColumns{text: "text", label: "label"}, splitter{seed: 1}, false)
		if err != nil || !slices.Equal(src.classes, want) {
			t.Errorf("%s: %v, want %q", labels, err, want)
		}
	}
}

func TestJSONLErrorsNameTheLine(t *testing.T) {
	defer func(most int) { ownBytes = most }(ownBytes)
	ownBytes = 1 << 20
	const good = "{\"text\": \"a\", \"label\": 1, \"more\": 1, \"more\": 2}\n"
	for _, c := range []struct {
		line, want string
		kind       Kind
	}{
		{"{\"text\": \"a\", \"label\": \"caf\xe9\"}", "line 4: it is not UTF-8", Class},
		{"{\"text\": \"caf\xe9\", \"label\": 1}", "line 4: it is not UTF-8", Class},
		{`{"text": "a", "label": "caf\udce9"}`, `line 4: label: "caf\udce9" has half a surrogate pair`, Class},
		{`{"text": "caf\udce9", "label": 1}`, `line 4: text: "caf\udce9" has half a surrogate pair`, Class},
		{`{"text": "a", "label": 1, "label": 2}`, `line 4: it has the key "label" twice`, Class},
		{`{"text": "a", "label": 1, "te\u0078t": "b"}`, `line 4: it has the key "text" twice`, Class},
		{`{"text": "", "label": 1}`, "line 4: the text is empty", Class},
		{`{"text": "a", "label": ""}`, "line 4: the label is empty", Class},
		{`{"text": "a", "label": "x"}`, `line 4: the label is "x", a finite number is needed`, Regression},
		{`{"text": "a", "label": "xy"}`, "line 4: the label has 2 bytes, the text 1", Labels},
		{`{"text": "a", "label": 1e999}`, "line 4: label: ", Class},
		{`{"text": "a", "label": null}`, "line 4: label: it is null", Class},
		{`1`, "line 4: it is 1; a JSON object is needed", Class},
		{`{"text": "a"`, "line 4: it is no JSON object in a line of its own: unexpected end of JSON input", Class},
		{`[1]`, "element 4: it is 1; a JSON object is needed", Class},
		{`[{"text": "a", "label": 1}, {"text": ""}]`, `element 5: it has no key "label"`, Class},
		{`[{"text": "a", "label": 1}`, "element 5: the JSON array has no end", Class},
	} {
		path := filepath.Join(folderOf(t, map[string][]byte{"a.jsonl": []byte(good + "\n" + good + c.line + "\n")}), "a.jsonl")
		if _, err := readOwnTexts(path, c.kind, ownColumns{text: "text", label: "label"}, splitter{seed: 1}, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: error is %v, want %s", c.line, err, c.want)
		}
	}
	path := filepath.Join(folderOf(t, map[string][]byte{"a.jsonl": []byte(good + "\n" + good)}), "a.jsonl")
	if err := os.Truncate(path, int64(2*len(good)+1+ownBytes+1)); err != nil {
		t.Fatal(err)
	}
	const want = "line 4: it has more than 1048576 bytes"
	if _, err := readOwnTexts(path, Class, ownColumns{text: "text", label: "label"}, splitter{seed: 1}, false); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a long line: error is %v, want %s", err, want)
	}
}

func TestReleasedPathfinderOmitsEmptyFiles(t *testing.T) {
	files := map[string][]byte{}
	var meta strings.Builder
	for i := range 30 {
		fmt.Fprintf(&meta, "imgs/7 sample_%d.png %d %d 1.0 14 4 2 0.5 1 1\n", i, i, i%2)
		files[fmt.Sprintf("pathfinder32/curv_contour_length_14/imgs/7/sample_%d.png", i)] = pngOf(t, 32, 32, func(x, y int) color.Color {
			return color.Gray{byte(i + x)}
		})
	}
	files["pathfinder32/curv_contour_length_14/imgs/7/sample_3.png"] = nil // LRA leaves it out
	files["pathfinder32/curv_contour_length_14/metadata/7.npy"] = []byte(meta.String())
	dir := folderOf(t, files)
	src := openSource(t, "pathfinder", Options{Folder: dir})
	holds(t, src)
	if got := src.Spec().Count; got != [3]int{25, 2, 2} {
		t.Errorf("samples %v", got)
	}
	if s := take(t, src, Train, 3); s.Tokens[33] != 5 || s.Class != 0 {
		t.Errorf("token %d, class %d", s.Tokens[33], s.Class)
	}
	for want, text := range map[string]string{
		"line 1: it has 3 fields": "imgs/7 x.png 0\n", `label is "2"`: "a b 0 2\n", "is not in the folder": "../.. x 0 1\n", "an array of numpy's": "\x93NUMPY",
	} {
		path := filepath.Join(dir, "pathfinder32/curv_contour_length_14/metadata/7.npy")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Open("pathfinder", Options{Folder: dir}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

func TestTextLabelsAreTheNextTokens(t *testing.T) {
	path := filepath.Join(folderOf(t, map[string][]byte{"x.txt": bytes.Repeat([]byte("abcdefghij"), 40)}), "x.txt")
	for _, name := range []string{"charlm", "bytelm"} {
		src := openSource(t, name, Options{}, "data", path, "length", "7")
		holds(t, src)
		for split := Train; split <= Valid; split++ {
			s := take(t, src, split, 1)
			for i, x := range s.Tokens {
				if next := s.Labels[i]; next != x+1 && next != x-9 {
					t.Fatalf("%s: %d after %d", name, next, x)
				}
			}
		}
	}
	if _, err := Open("bytelm", Options{Settings: map[string]string{"data": path, "length": "0"}}); err == nil || !strings.Contains(err.Error(), "length: it is 0") {
		t.Error(err)
	}
}

func FuzzReadJSONL(f *testing.F) {
	f.Add("{\"text\": \"a\", \"label\": 1}\n")
	f.Add("{\"text\": null, \"label\": \"\\ud800\"}\n\n{}")
	f.Fuzz(func(t *testing.T, s string) {
		var rows []ownRow
		var err error
		if n := check.AllocatedBytes(func() { rows, err = (&ownColumns{text: "text", label: "label"}).readJSONL(strings.NewReader(s)) }); n > 1<<20+512*int64(len(s)) {
			t.Errorf("%d bytes are read in %d bytes of memory", len(s), n)
		}
		if err != nil {
			return
		}
		for _, kind := range []Kind{Class, Regression, Labels} {
			_ = (&OwnTexts{ownData: ownData[ownText]{kind: kind, length: 5}}).addRows(rows, false, splitter{seed: 1})
		}
	})
}

func FuzzColumns(f *testing.F) {
	f.Add("text,label\na,1\n\"b,\",2\n")
	f.Add("label\ttext\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, comma := range ",\t" {
			var rows []ownRow
			var err error
			if n := check.AllocatedBytes(func() { rows, err = (&ownColumns{text: "text", label: "label"}).readTable(strings.NewReader(s), comma) }); n > 1<<20+512*int64(len(s)) {
				t.Errorf("%d bytes are read in %d bytes of memory", len(s), n)
			}
			if err == nil {
				_ = (&OwnTexts{ownData: ownData[ownText]{kind: Class, length: 5}}).addRows(rows, false, splitter{seed: 1})
			}
		}
	})
}

// Names in metadata stay inside their folder.
func FuzzMetadata(f *testing.F) {
	f.Add("imgs/0 sample_0.png 0 1\n")
	f.Add("../.. etc 0 1\n/ etc 0 0\n\x93NUMPY")
	f.Fuzz(func(t *testing.T, s string) {
		list, err := readMetadata(strings.NewReader(s), "folder")
		if err != nil {
			return
		}
		for _, r := range list {
			if first, _, _ := strings.Cut(filepath.ToSlash(r.path), "/"); first != "folder" {
				t.Errorf("%q is read", r.path)
			}
		}
	})
}

// Names of classes do not hold the text of their table in memory.
func TestClassesAreCopied(t *testing.T) {
	table := strings.Repeat("ab", 60)
	texts, labels := OwnTexts{}, OwnTexts{ownData: ownData[ownText]{kind: Labels}}
	texts.kind = Class
	var rows []ownRow
	for i := range 30 {
		rows = append(rows, ownRow{text: table[i : i+2], label: table[i+1 : i+3]})
	}
	if err := errors.Join(texts.addRows(rows, false, splitter{seed: 1}), labels.addRows(rows, false, splitter{seed: 1})); err != nil {
		t.Fatal(err)
	}
	kept := slices.Concat(texts.classes, labels.classes)
	for _, own := range labels.parts[Train] {
		kept = append(kept, own.labels)
	}
	for _, s := range kept {
		for i := range len(table) {
			if unsafe.StringData(s) == unsafe.StringData(table[i:]) {
				t.Fatalf("%q is a part of the table", s)
			}
		}
	}
}

// An error of a text's tokens names its file, or its row.
func TestTokenErrorsNameTheText(t *testing.T) {
	vocab, err := token.NewCharVocabulary([]byte("ab"))
	if err != nil {
		t.Fatal(err)
	}
	dir := folderOf(t, map[string][]byte{
		"x.jsonl": []byte("{\"text\": \"a\", \"label\": 1}\n\n{\"text\": \"a\u00e9\", \"label\": 2}\n"), "x.csv": []byte("text,label\na,1\nbé,2\n"),
		"x/train/1/a.txt": []byte("a"), "x/train/2/b.txt": []byte("bé"),
	})
	for name, want := range map[string]string{"x.jsonl": "x.jsonl: line 3: ", "x.csv": "x.csv: row 2 below the header: ", "x": filepath.FromSlash("x/train/2/b.txt: ")} {
		o := Options{Tokens: &Tokens{Vocabulary: vocab, Size: vocab.Size()}, Settings: map[string]string{"data": filepath.Join(dir, name)}}
		if _, err := Open("file", o); err == nil || !strings.HasPrefix(err.Error(), "task file: "+filepath.Join(dir, want)+"character 'é'") {
			t.Errorf("%s: error is %v, want %s", name, err, want)
		}
	}
}

// An empty file is refused before a training reads it.
func TestEmptyTextsAreRefusedBeforeTraining(t *testing.T) {
	dir := folderOf(t, map[string][]byte{"train/a/1": []byte("a"), "train/b/1": []byte("b"), "test/b/2": nil})
	src := openSource(t, "file", Options{}, "data", dir, "vocabulary", "")
	if err := CheckTrainingClasses(src); err == nil || err.Error() != filepath.Join(dir, "test", "b", "2")+": it is empty" {
		t.Errorf("error is %v", err)
	}
}
