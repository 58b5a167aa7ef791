package reproduce

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/model"
)

// smallData is a folder of data sets of a few samples each, in their formats.
func smallData(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	idx := func(shape []int, data []byte) []byte {
		b := []byte{0, 0, 8, byte(len(shape))}
		for _, n := range shape {
			b = binary.BigEndian.AppendUint32(b, uint32(n))
		}
		return append(b, data...)
	}
	const digits = fig2Learn * 10 / 9
	pixels, labels := make([]byte, (digits+1)*784), make([]byte, digits+1)
	for i := range pixels {
		pixels[i] = byte(i * i)
	}
	for i := range labels {
		labels[i] = byte(i % 10)
	}
	files := map[string][]byte{
		"mnist/train-images-idx3-ubyte": idx([]int{digits + 1, 28, 28}, pixels), "mnist/train-labels-idx1-ubyte": idx([]int{digits + 1}, labels),
		"mnist/t10k-images-idx3-ubyte": idx([]int{4, 28, 28}, pixels[:4*784]), "mnist/t10k-labels-idx1-ubyte": idx([]int{4}, labels[:4]),
		"tinyshakespeare/input.txt": []byte(strings.Repeat("To be, or not to be:\nthat is the question. ", 300)),
	}
	for b := range 6 {
		name := fmt.Sprintf("cifar10/data_batch_%d.bin", b+1)
		if b == 5 {
			name = "cifar10/test_batch.bin"
		}
		for i := range 10 {
			image := make([]byte, 3073)
			for j := range image {
				image[j] = byte(i*j + b)
			}
			image[0] = byte(i)
			files[name] = append(files[name], image...)
		}
	}
	for _, part := range []string{"train", "test"} {
		var b strings.Builder
		for i := range 80 {
			fmt.Fprintf(&b, "%d\t%d_%d\ttt%07d\tfilm %d seen again, number %d\n", i%2, i, i%2, i/4, i/4, i)
		}
		files["imdb/imdb_"+part+".tsv"] = []byte(b.String())
	}
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shrunk are the lessons with nets of a few numbers and a few updates.
func (f lessons) shrunk() lessons {
	return func(o *Options) ([]*lesson, error) {
		all, err := f(o)
		for _, l := range all {
			c := &l.Config
			c.Steps, c.Batch, c.EvalEvery, c.EvalSamples, c.FinalSamples = 3, 2, 0, 2, 2
			m := &c.Model
			m.Width, m.Hidden, m.Layers = 4*m.Heads, 8, 2
			if m.Kind == model.Convolutional {
				m.Hidden, m.Layers = 0, 4 // attention is between the second and the third
			}
			if m.Context > 0 {
				m.Context = min(m.Context, 40)
			}
			if c.TaskSet["length"] != "" {
				c.TaskSet["length"] = "30"
			}
		}
		return all, err
	}
}

// shrunkOutcome makes a row with shrunken lessons, and its page.
func shrunkOutcome(t *testing.T, f lessons, more func(*Outcome, []scored) error) *Outcome {
	t.Helper()
	f = f.shrunk()
	r := &Row{Name: "shrunk", pieces: f.pieces, outcome: f.outcome(more)}
	o := &Options{Out: t.TempDir(), Data: smallData(t), Seeds: 1}
	out, err := r.Run(t.Context(), o, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := out.Write(o)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, pageFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range out.Sections {
		if !strings.Contains(string(page), d.Title) {
			t.Errorf("the page has no %s", d.Title)
		}
		if _, err := os.Stat(filepath.Join(dir, d.Name+".svg")); err != nil {
			t.Error(err)
		}
	}
	if len(out.Missing) > 0 {
		t.Errorf("missing: %v", out.Missing)
	}
	return out
}

// differentLosses counts the last losses of the trainings whose names hold part.
func differentLosses(t *testing.T, out *Outcome, part string) int {
	t.Helper()
	seen := map[float64]bool{}
	for _, r := range out.Records {
		if strings.Contains(r.Piece, "-seed-") && strings.Contains(r.Piece, part) {
			x, _, err := get[learned](&Results{records: out.Records}, r.Piece)
			if err != nil {
				t.Fatal(err)
			}
			seen[x.Steps[len(x.Steps)-1].Loss] = true
		}
	}
	return len(seen)
}

// tableOf returns the table whose title begins so.
func tableOf(t *testing.T, out *Outcome, title string) report.Table {
	t.Helper()
	i := slices.IndexFunc(out.Tables, func(x report.Table) bool { return strings.HasPrefix(x.Title, title) })
	if i < 0 {
		t.Fatalf("no table %q", title)
	}
	return out.Tables[i]
}

func TestFig2(t *testing.T) {
	out := shrunkOutcome(t, fig2Lessons, fig2Findings)
	x := tableOf(t, out, "Accuracy in percent by form")
	if len(x.Rows) != 1+len(fig2Forms)*len(fig2Rates) || x.Rows[0][0] != "none" || x.Rows[1][0] != "quadratic 0.05" || x.Rows[1][3] == none {
		t.Errorf("%+v", x)
	}
	// Each form and rate is a training of its own.
	if n := differentLosses(t, out, ""); n != len(x.Rows) {
		t.Errorf("%d trainings have %d different losses", len(x.Rows), n)
	}
	if f := out.Figures[len(out.Figures)-1]; len(f.Series) != len(fig2Forms) || !slices.Equal(f.Series[0].X, []float64{0, 0.05, 0.2}) {
		t.Errorf("figure %+v", f)
	}
	if !strings.Contains(x.Note, "500 images") {
		t.Errorf("note %q", x.Note)
	}
}

func TestFig4(t *testing.T) {
	out := shrunkOutcome(t, fig4Lessons, fig4Findings)
	if len(out.Sections) != shownDigits+1 {
		t.Fatalf("%d drawings", len(out.Sections))
	}
	for i, side := range []int{50, 50, shownTokens} { // patches and a class token; characters
		m := out.Sections[i].Maps
		columns := shownHeads
		if i < shownDigits {
			columns++
		}
		if m.Columns != columns || len(m.Heats) != columns*len(mapMethods) {
			t.Fatalf("%s: %d maps in %d columns", out.Sections[i].Name, len(m.Heats), m.Columns)
		}
		h := m.Heats[columns-1]
		if h.Rows != side || h.Cols != side {
			t.Errorf("%s: a map of %d rows and %d columns", out.Sections[i].Name, h.Rows, h.Cols)
		}
		for r := range h.Rows {
			var sum float64
			for _, w := range h.Values[r*side:][:side] {
				sum += w
			}
			if sum < 0.99 || sum > 1.01 {
				t.Fatalf("%s: weights of query %d add up to %g", out.Sections[i].Name, r, sum)
			}
		}
	}
	if n := differentLosses(t, out, "text-"); n != len(mapMethods) {
		t.Errorf("%d mechanisms have %d different losses", len(mapMethods), n)
	}
	if m := out.Sections[0].Maps; !m.Heats[0].Grey || m.Heats[0].Rows != 28 {
		t.Errorf("no digit beside its maps: %d rows", m.Heats[0].Rows)
	}
	if x := out.Sections[shownDigits].Maps.Heats[0]; strings.Join(x.X.Ticks[:5], "") == "" || len(x.X.Ticks) != shownTokens {
		t.Errorf("labels %q", x.X.Ticks)
	}
	if x := tableOf(t, out, "Where the weights"); len(x.Rows) != 2*len(mapMethods) {
		t.Errorf("%+v", x)
	}
}

func TestLocality(t *testing.T) {
	out := shrunkOutcome(t, localityLessons, localityFindings)
	x := tableOf(t, out, "Where the weights of trained heads")
	if len(x.Rows) != 2+2*len(mapMethods)+len(heated)*(len(temperatures)-1) || x.Rows[0][1] != "equal weights" || x.Rows[0][2] != "3.91" { // ln 50
		t.Errorf("%+v", x)
	}
	hot := tableOf(t, out, "text: nats per token against temperature")
	if len(hot.Rows) != len(heated) || slices.Contains(hot.Rows[0], none) || differentLosses(t, out, "temperature") != len(heated)*(len(temperatures)-1) {
		t.Errorf("%+v", hot)
	}
	if u := uniform(2, true); u.Diagonal != 0.75 || u.Column != 0.75 || u.Distance != 0.25 {
		t.Errorf("equal weights of two causal tokens: %+v", u)
	}
}

func TestFig5(t *testing.T) {
	f := fig5Lessons
	defer func() { fig5Lessons = f }()
	fig5Lessons = func(o *Options) ([]*lesson, error) {
		all, err := f.shrunk()(o)
		for _, l := range all {
			l.Length = 1024 // of the timing
		}
		return all, err
	}
	r := &Row{Name: "shrunk", pieces: fig5Pieces, outcome: fig5Outcome}
	o := &Options{Out: t.TempDir(), Data: smallData(t), Seeds: 1}
	pieces, err := r.Pieces(o)
	if err != nil {
		t.Fatal(err)
	}
	results := new(Results)
	store := store{o.folder(r)}
	for _, p := range pieces {
		if strings.HasSuffix(p.Name, "-speed") {
			l, err := fig5Lessons(o)
			if err != nil {
				t.Fatal(err)
			}
			c := fig5Speed(o, l[0])
			c.Each = 1
			l[0].Config.Folder = o.Data
			speeds, err := l[0].speeds(&Work{Ctx: t.Context()}, c)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range speeds {
				if s.Ms <= 0 || s.Bytes <= 0 {
					t.Errorf("%+v", s)
				}
			}
			addResult(t, results, p.Name, speeds)
			continue
		}
		record, err := store.make(t.Context(), o, &p, nil)
		if err != nil {
			t.Fatal(err)
		}
		results.add(record)
	}
	out, err := r.conclude(o, results)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write(o); err != nil {
		t.Fatal(err)
	}
	x := tableOf(t, out, "Averages over tasks")
	if len(x.Rows) != len(fig5Published)+1 {
		t.Fatalf("%+v", x)
	}
	for _, row := range x.Rows {
		if row[3] == none || row[4] == none || row[7] == none {
			t.Errorf("%v", row)
		}
	}
	if f := out.Figures[len(out.Figures)-1]; len(f.Series) != len(fig5Published)+1 || len(f.Series[0].Size) != 1 {
		t.Errorf("figure %+v", f)
	}
}

func TestFig6(t *testing.T) {
	out := shrunkOutcome(t, fig6Lessons, fig6Findings)
	x := tableOf(t, out, "Training loss at the same update")
	if len(x.Rows) != 3*3 {
		t.Fatalf("%+v", x)
	}
	fastest := 0
	for _, row := range x.Rows {
		if row[7] == "3" {
			fastest++
		}
	}
	if fastest < 3 {
		t.Errorf("of each lesson one mechanism has made all updates first: %+v", x.Rows)
	}
}

func TestShapesAttention(t *testing.T) {
	out := shrunkOutcome(t, shapesLessons, shapesFindings)
	if len(out.Sections) != 1 || len(out.Sections[0].Maps.Heats) != 3 { // all but convolutions alone
		t.Fatalf("drawings %+v", out.Sections)
	}
	if h := out.Sections[0].Maps.Heats[0]; h.Rows != shapesLength || h.Cols != shapesLength {
		t.Errorf("a map of %d rows and %d columns", h.Rows, h.Cols)
	}
}

func TestRunning(t *testing.T) {
	if got := running([]float64{4, 2, 6, 0}, 2); !slices.Equal(got, []float64{4, 3, 4, 3}) {
		t.Errorf("%v", got)
	}
}
