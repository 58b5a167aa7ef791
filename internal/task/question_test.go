package task

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// png8 encodes pixels as PNG: grey with one byte per pixel, otherwise RGB.
func png8(t *testing.T, width, height int, pixels []byte) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range width * height {
		c := color.RGBA{A: 255}
		if len(pixels) == width*height {
			c.R, c.G, c.B = pixels[i], pixels[i], pixels[i]
		} else {
			c.R, c.G, c.B = pixels[3*i], pixels[3*i+1], pixels[3*i+2]
		}
		m.Set(i%width, i/width, c)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// wav16 encodes a sound of one channel with 16 bits.
func wav16(samples []int16) []byte {
	b := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(36+2*len(samples)))
	b = append(b, "WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"...)
	b = binary.LittleEndian.AppendUint32(b, 8000)
	b = binary.LittleEndian.AppendUint32(b, 16000)
	b = append(b, "\x02\x00\x10\x00data"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(2*len(samples)))
	for _, x := range samples {
		b = binary.LittleEndian.AppendUint16(b, uint16(x))
	}
	return b
}

// linesOf formats rows of numbers as CSV.
func linesOf(values []float32, columns int) []byte {
	var b bytes.Buffer
	for i, x := range values {
		fmt.Fprint(&b, x, map[bool]string{true: "\n", false: ","}[i%columns == columns-1])
	}
	return b.Bytes()
}

// For each task a sample is written as a user's input; the sample read from the input must be
// equal.
func TestQuestionsAreAskedAsTheTaskWasLearned(t *testing.T) {
	pixels := make([]byte, 1200*784)
	for i := range pixels {
		pixels[i] = byte(i * i >> 3)
	}
	labels := make([]byte, 1200)
	digits := map[string][]byte{
		"mnist/train-images-idx3-ubyte": idx([]int{20, 28, 28}, pixels[:20*784]), "mnist/train-labels-idx1-ubyte": idx([]int{20}, labels[:20]),
		"mnist/t10k-images-idx3-ubyte": idx([]int{2, 28, 28}, pixels[:2*784]), "mnist/t10k-labels-idx1-ubyte": idx([]int{2}, labels[:2]),
	}
	digit := func(t *testing.T, s *Sample) []byte { return png8(t, 28, 28, pixels[:784]) }
	sounds, pictures, sequences, genome := map[string][]byte{}, map[string][]byte{}, map[string][]byte{}, map[string][]byte{}
	for i := range 60 {
		class := string("ab"[i%2])
		sound := make([]int16, 40+i)
		for k := range sound {
			sound[k] = int16(k*i*97 - 1000)
		}
		sounds[fmt.Sprintf("%s/%02d.wav", class, i)] = wav16(sound)
		pictures[fmt.Sprintf("%s/%02d.png", class, i)] = png8(t, 9, 7, pixels[i*100:][:9*7*3])
		var values []float32
		for k := range 2 * (5 + i) {
			values = append(values, float32(k*i%17)/3)
		}
		sequences[fmt.Sprintf("%s/%02d.csv", class, i)] = linesOf(values, 2)
		genome[fmt.Sprintf("%s/%02d.fa", class, i)] = fmt.Appendf(nil, ">r%d\n%s\n", i, strings.Repeat("ACGNTTA", 1+i%4))
	}
	text := func(t *testing.T, s *Sample) []byte {
		var b []byte
		for i, x := range s.Tokens {
			if s.Cut > 0 && i == s.Cut {
				b = append(b, '\t')
			}
			b = append(b, byte(x-1))
		}
		return b
	}
	tokens := func(t *testing.T, s *Sample) []byte { return []byte(strings.Trim(fmt.Sprint(s.Tokens), "[]")) }
	expression := func(t *testing.T, s *Sample) []byte { return AppendExpression(nil, s.Tokens) }
	values := func(columns int) func(*testing.T, *Sample) []byte {
		return func(_ *testing.T, s *Sample) []byte { return linesOf(s.Values, columns) }
	}
	prefixed := func(folder string, files map[string][]byte) map[string][]byte {
		out := map[string][]byte{}
		for name, b := range files {
			out[folder+"/"+name] = b
		}
		return out
	}
	var reviews strings.Builder
	for film := range 40 {
		for r := range 2 {
			fmt.Fprintf(&reviews, "%d\t%d_%d\ttt%d\tfilm %02d review %d\n", r, r, r, film, film, r)
		}
	}
	imdb := map[string][]byte{"imdb/imdb_train.tsv": []byte(reviews.String()), "imdb/imdb_test.tsv": []byte(reviews.String())}
	var contours []byte
	for i := range 40 {
		contours = append(append(contours, byte(i%2)), pixels[i*64:][:1024]...)
	}
	for _, c := range []struct {
		name   string
		files  map[string][]byte
		set    []string
		suffix string // "": a line
		input  func(t *testing.T, s *Sample) []byte
	}{
		{"shapes", nil, nil, ".csv", values(1)},
		{"listops", nil, []string{"above", "20", "below", "60"}, "", expression},
		{"listops6", nil, []string{"min", "8", "max", "18"}, "", expression},
		{"copy", nil, nil, "", tokens},
		{"induction", nil, nil, "", tokens},
		{"mqar", nil, []string{"vocab", "256", "length", "128", "pairs", "8"}, "", tokens},
		{"needle", nil, []string{"length", "256"}, "", tokens},
		{"pathfinder", map[string][]byte{"pathfinder32/contour14.bin": contours}, nil, ".png", func(t *testing.T, s *Sample) []byte {
			var b []byte
			for _, x := range s.Tokens {
				b = append(b, byte(x))
			}
			return png8(t, 32, 32, b)
		}},
		{"mnist", digits, nil, ".png", digit},
		{"mnist", digits, []string{"as", "patches", "patch", "7"}, ".png", digit},
		{"text", imdb, []string{"length", "9"}, "", text},
		{"films", imdb, []string{"length", "9"}, "", text},
		{"wav", prefixed("data", sounds), []string{"length", "50"}, ".wav", nil},
		{"picture", prefixed("data", pictures), []string{"side", "6"}, ".png", nil},
		{"picture", prefixed("data", pictures), []string{"side", "6", "as", "patches", "patch", "3"}, ".png", nil},
		{"series", prefixed("data", sequences), []string{"length", "30"}, ".csv", nil},
		{"fasta", prefixed("data", genome), []string{"length", "15"}, ".fa", nil},
		{"fasta", prefixed("data", genome), []string{"length", "15", "letters", "all"}, ".fa", nil},
	} {
		t.Run(strings.Join(append([]string{c.name}, c.set...), " "), func(t *testing.T) {
			folder := folderOf(t, c.files)
			set := c.set
			if c.files["data/a/00.wav"] != nil || c.files["data/a/00.png"] != nil || c.files["data/a/00.csv"] != nil || c.files["data/a/00.fa"] != nil {
				set = append(slices.Clone(set), "data", filepath.Join(folder, "data"))
			}
			src := openSource(t, c.name, Options{Folder: folder, Seed: 1, DrawnSplits: true}, set...)
			holds(t, src)
			spec := src.Spec()
			known := ModelInfo{Channels: spec.Channels, Length: spec.Length / spec.Parts, Outputs: max(spec.Classes, spec.Outputs)}
			if row, _ := Lookup(c.name); row.HasOwnClasses() {
				known.Classes = src.(ClassNamer).ClassNames()
			}
			m := map[string]string{}
			for i := 0; i < len(set); i += 2 {
				m[set[i]] = set[i+1]
			}
			q, err := Ask(c.name, m, known)
			if err != nil {
				t.Fatal(err)
			}
			if names, ok := src.(ClassNamer); ok && !slices.Equal(names.ClassNames(), q.ClassNames()) {
				t.Errorf("classes are %q, of the task %q", q.ClassNames(), names.ClassNames())
			}
			if q.NeedsLine() != (c.suffix == "") || q.InputKind() == "" {
				t.Errorf("lines %t, wants %q", q.NeedsLine(), q.InputKind())
			}
			split := spec.JudgedSplit()
			n := spec.Count[split]
			if n == Endless {
				n = 5
			}
			for i := range min(n, 5) {
				want := take(t, src, split, i)
				path := fileOf(src, split, i)
				if c.input != nil {
					content := c.input(t, &want)
					if c.name == "mnist" && i == 1 {
						content = png8(t, 28, 28, pixels[784:][:784])
					}
					if q.NeedsLine() {
						if err := q.SetLine(content); err != nil {
							t.Fatalf("%q: %v", content, err)
						}
						path = ""
					} else {
						path = filepath.Join(folderOf(t, map[string][]byte{"in" + c.suffix: content}), "in"+c.suffix)
					}
				}
				if path != "" {
					list, err := q.ReadFile(path)
					if err != nil || len(list) != 1 || len(list[0].Samples) != 1 {
						t.Fatalf("%s: %d inputs, %v", path, len(list), err)
					}
					q.SetInput(list[0])
				}
				got := take(t, q, Test, 0)
				if !slices.Equal(got.Tokens, want.Tokens) || !slices.Equal(got.Values, want.Values) || got.Cut != want.Cut {
					t.Fatalf("sample %d: tokens %v, values %.9v, cut %d\nwant %v, %.9v, %d", i, got.Tokens, got.Values, got.Cut, want.Tokens, want.Values, want.Cut)
				}
			}
			have := q.Spec()
			have.Count, have.Metric, spec.Metric, spec.Count = [3]int{}, "", "", [3]int{}
			if have != spec {
				t.Errorf("specification %+v, of the task %+v", have, spec)
			}
		})
	}
}

// fileOf returns the file of a sample of the user's own data.
func fileOf(src Source, split Split, i int) string {
	switch s := src.(type) {
	case *Sounds:
		return s.files[split][i].path
	case *Pictures:
		return s.files[split][i].path
	case *OwnSeries:
		return s.parts[split][i].path
	case *FASTA:
		return s.parts[split][i].path
	}
	return ""
}

// A long file gives consecutive windows, and a file of records an input for each.
func TestQuestionsOfManySamples(t *testing.T) {
	q, err := Ask("series", map[string]string{"ask": "each"}, ModelInfo{Classes: []string{"a", "b"}, Channels: 1, Length: 2})
	if err != nil {
		t.Fatal(err)
	}
	folder := folderOf(t, map[string][]byte{"x.csv": []byte("1\n2\n3\n4\n5\n")})
	list, err := q.ReadFile(filepath.Join(folder, "x.csv"))
	if err != nil || len(list) != 1 || len(list[0].Samples) != 3 || len(list[0].Samples[2].Values) != 1 {
		t.Fatalf("%d inputs, %v", len(list), err)
	}
	if q, err = Ask("genome", map[string]string{"length": "3"}, ModelInfo{Length: 3, Outputs: 4}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folderOf(t, map[string][]byte{"x.fa": []byte(">one two\nACGT\n>three\nTT\n")}), "x.fa")
	if list, err = q.ReadFile(path); err != nil || len(list) != 2 || list[0].Name != "one" || fmt.Sprint(list[0].Samples[0].Tokens, list[1].Samples[0].Tokens) != "[1 2 3] [4 4]" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestQuestionsRefuseInputsThatDoNotFit(t *testing.T) {
	dir := folderOf(t, map[string][]byte{"a.csv": []byte("1,2\n"), "a.fa": []byte(">x\n>y\nA\n")})
	for _, c := range []struct {
		name  string
		set   map[string]string
		known ModelInfo
		input string // a file if it has a dot
		want  string
	}{
		{"bytelm", nil, ModelInfo{}, "", "task bytelm: its models go on with a text: farfield generate writes"},
		{"mnist-gen", nil, ModelInfo{}, "", "task mnist-gen: its models draw: farfield generate --images"},
		{"none", nil, ModelInfo{}, "", `task "none": unknown`},
		{"file", map[string]string{"length": "0"}, ModelInfo{}, "", "task file: length: it is 0"},
		{"file", map[string]string{"lenth": "0"}, ModelInfo{}, "", `task file: setting "lenth": unknown`},
		{"file", nil, ModelInfo{}, "-", "the text is empty"},
		{"films", nil, ModelInfo{}, "one", `"one" is not two texts with a tab between them`},
		{"listops", nil, ModelInfo{Length: 2}, "[MAX 1 2 ]", "it has 4 tokens, the model 2 positions"},
		{"listops", nil, ModelInfo{Length: 9}, "[FIRST 1 2 ]", `"[FIRST" is no operator of this task`},
		{"copy", nil, ModelInfo{Length: 9, Outputs: 3}, "1 3", `"3" is no token, 0 to 2 are`},
		{"series", nil, ModelInfo{Channels: 3, Length: 9}, "a.csv", "a.csv: its rows have 2 numbers, the model learned from 3"},
		{"series", map[string]string{"ask": "number"}, ModelInfo{Channels: 3, Length: 9}, "", "task series: scales: "},
		{"series", nil, ModelInfo{Channels: 3, Length: 9}, "none.csv", "no such file"},
		{"fasta", nil, ModelInfo{Length: 9}, "a.fa", `record 0, "x": it has no letters`},
		{"picture", map[string]string{"as": "patches", "patch": "5"}, ModelInfo{}, "", "patch: it is 5, which does not divide a side of 32"},
		{"mnist", map[string]string{"as": "patches", "patch": "5"}, ModelInfo{}, "", "patch: it is 5, a divisor of 28 is needed"},
	} {
		q, err := Ask(c.name, c.set, c.known)
		switch {
		case err != nil || c.input == "":
		case q.NeedsLine():
			err = q.SetLine([]byte(strings.TrimPrefix(c.input, "-")))
		default:
			_, err = q.ReadFile(filepath.Join(dir, c.input))
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v %q: error is %v, want %s", c.name, c.set, c.input, err, c.want)
		}
	}
	for _, row := range Rows() {
		if err := CheckAskable(row.Name); (err != nil) != (row.ask == nil) || err != nil && !strings.Contains(err.Error(), "farfield ") {
			t.Errorf("%s: %v", row.Name, err)
		}
	}
}
