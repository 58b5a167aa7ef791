package reproduce

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train"
)

// Every training of the arena whose samples need no data has a model, and only unpadded samples grow.
func TestArenaOfAllTasksIsConfigured(t *testing.T) {
	all, err := arenaLessonsAll(&Options{Budget: Hour})
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, l := range all {
		names += " " + l.Name
		for i := range l.Methods {
			c := l.configFor(&l.Methods[i], 1, 1)
			if c.Task != "listops" && c.Task != "pathfinder" {
				continue
			}
			src, err := c.OpenTask()
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := c.PrepareTask(src); err != nil {
				t.Errorf("%s, %s: %v", l.Name, l.Methods[i].Label, err)
			}
			if padded := strings.HasSuffix(l.Name, paddedMark); padded != c.LRAQuirk || padded && c.FirstContext > 0 {
				t.Errorf("%s, %s: padded %t, samples begin with %d tokens", l.Name, l.Methods[i].Label, c.LRAQuirk, c.FirstContext)
			}
		}
	}
	if names != " listops listops-padded text text-padded retrieval retrieval-padded image pathfinder" {
		t.Errorf("lessons%s", names)
	}
}

// The table has published numbers beside ours, and a mean where all five tasks are trained.
func TestArenaOfAllTasksHasMeans(t *testing.T) {
	here := map[string]float64{"listops": 38, "text": 62, "retrieval": 80, "image": 40}
	if got := both(arenaPublished5(softmax.Label), here, ""); got != "57.37; –" {
		t.Errorf("four tasks: %s", got)
	}
	here["pathfinder"] = 65
	if got := both(arenaPublished5(softmax.Label), here, ""); got != "57.37; 57.00" {
		t.Errorf("five tasks: %s", got)
	}
	if got := both(arenaPublished5(linearPadded.Label), here, "listops"); got != "16.13; 38.00" {
		t.Errorf("linear: %s", got)
	}
}

// Norms are summed up over all updates, also those that a figure leaves out.
func TestNormsOfAllUpdates(t *testing.T) {
	var curve []train.Step
	for i := range 100 {
		curve = append(curve, train.Step{Step: i + 1, GradNorm: 1, Loss: 2})
	}
	curve[70].GradNorm, curve[3].GradNorm = 50, 9
	if got := sumNorms(curve); *got != (normSummary{Updates: 100, First: 1, Median: 1, Largest: 50, At: 71, Above: 1, Loss: 2}) {
		t.Errorf("%+v", got)
	}
	if sumNorms(nil) != nil {
		t.Error("norms of no update")
	}
}

// The worked example has the counts that the paper prints.
func TestWorkedExampleIsCounted(t *testing.T) {
	x := workedExample()[0]
	if x.Products != 9 || x.Sums != 6 || x.ProductsFactored != 6 || x.SumsFactored != 2 || x.Difference > 1e-14 {
		t.Errorf("%+v", x)
	}
}

// Documents of a meeting stay on one side of the split, have no names, and windows lie within a meeting.
func TestMeetingsAreCutIntoDocuments(t *testing.T) {
	dir := t.TempDir()
	line := func(speaker string, words int) string {
		return `{"meeting_transcripts":[{"speaker":"` + speaker + `","content":"` + strings.Repeat("word ", words) + `"}]}` + "\n"
	}
	if err := os.Mkdir(filepath.Join(dir, "qmsum"), 0o777); err != nil {
		t.Fatal(err)
	}
	var train strings.Builder
	for range 5 {
		train.WriteString(line("Professor B", 30))
	}
	for name, text := range map[string]string{"val.jsonl": train.String(), "test.jsonl": line("Lynne AM", 50) + line("Hon. A", 5) + line("Project Manager", 1)} {
		if err := os.WriteFile(filepath.Join(dir, "qmsum", name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	src, err := openMeetings(dir, 50)
	if err != nil {
		t.Fatal(err)
	}
	if got := src.Spec().Count; got != [3]int{4 * 3, 3, 5 + 1} {
		t.Errorf("documents %v", got)
	}
	var s task.Sample
	if err := src.Sample(&s, task.Test, 5); err != nil || s.Class != 3 || len(s.Tokens) != 26 || s.Tokens[0] != 'w'+1 {
		t.Errorf("sample %+v, %v", s, err)
	}
	if err := src.DrawWindow(&s, 20, rng.New(1), 7); err != nil || s.Class != 1 || len(s.Tokens) != 20 {
		t.Errorf("window %+v, %v", s, err)
	}
	if err := src.DrawWindow(&s, 51, rng.New(1), 7); err == nil {
		t.Error("a window longer than a document is drawn")
	}
	if err := os.WriteFile(filepath.Join(dir, "qmsum", "test.jsonl"), []byte(line("Nobody", 50)), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := openMeetings(dir, 50); err == nil || !strings.Contains(err.Error(), "meeting 1: no speaker tells its kind") {
		t.Errorf("error is %v", err)
	}
}

// Patches hold all pixels of a picture, and shapes differ.
func TestDrawnShapesFillPatches(t *testing.T) {
	var large, small task.Sample
	if err := (drawnShapes{16}).Sample(&large, task.Test, 3); err != nil {
		t.Fatal(err)
	}
	if err := (drawnShapes{4}).Sample(&small, task.Test, 3); err != nil {
		t.Fatal(err)
	}
	// The pixel in row 17 and column 34: in patches of 16 and of 4.
	a, b := large.Values[(1*16+2)*256+1*16+2], small.Values[(4*64+8)*16+1*4+2]
	if a != b || large.Class != small.Class || len(large.Values) != len(small.Values) {
		t.Errorf("pixels %g and %g, classes %d and %d", a, b, large.Class, small.Class)
	}
	for class := range pictureShapes {
		area := 0
		for i := range 400 * 400 {
			if insideShape(int32(class), float64(i%400)/100-2, float64(i/400)/100-2) {
				area++
			}
		}
		if a := float64(area) / 1e4; a < 3 || a > 3.3 {
			t.Errorf("%s: area %g", pictureShapes[class], a)
		}
	}
}

// A tone has its power in the band of its frequency, and silence pads the rest.
func TestSpectrumHasABandForEachTone(t *testing.T) {
	samples := make([]float32, 4*spokenFrame)
	const k = 40 // turns in a frame
	for i := range samples {
		samples[i] = float32(math.Sin(2 * math.Pi * k * float64(i) / spokenFrame))
	}
	x := spectrum(samples)
	want := 0
	for bandEdge(want+1) <= k {
		want++
	}
	for band := range spokenBands {
		if d := band - want; x[band] > 0 != (d == 0) && (d < -1 || d > 1) {
			t.Errorf("band %d has %g, the tone is in %d", band, x[band], want)
		}
	}
	if len(x) != spokenFrames*spokenBands || x[len(x)-1] != float32(math.Log(quietest)) || bandEdge(spokenBands) != spokenFrame/2-1 {
		t.Errorf("%d numbers, the last %g, bands end at %d", len(x), x[len(x)-1], bandEdge(spokenBands))
	}
}

// Every mechanism whose gradients are followed trains, and a row tells its norms.
func TestNormsOfTrainings(t *testing.T) {
	out := shrunkOutcome(t, trainedLessons, nothingMore)
	r := &Results{records: out.Records}
	told := new(Outcome)
	if err := told.addTrained(&Options{Seeds: 1}, r); err != nil {
		t.Fatal(err)
	}
	if rows := told.Tables[0].Rows; len(rows) != 9+4+9 || rows[0][2] != "3" || rows[0][len(rows[0])-1] != "whole" {
		t.Errorf("%+v", rows)
	}
	if len(told.Findings) != 2 {
		t.Errorf("findings %q", told.Findings)
	}
}

// Multipole trains from scratch, causal and not.
func TestMultipoleTrainsFromScratch(t *testing.T) {
	short := func(o *Options) ([]*lesson, error) {
		list, err := scratchLessons(o)
		list[0].Config.TaskSet["pairs"] = "2"
		return list[:1], err
	}
	out := shrunkOutcome(t, short, scratchFindings)
	if rows := out.Tables[0].Rows; len(rows) != len(scratchMethods()) {
		t.Errorf("%+v", rows)
	}
	l, err := presetLesson("listops", "listops", 3, brief["listops"])
	if err != nil {
		t.Fatal(err)
	}
	l.Methods, l.Seeds = []method{multipoleAdapted, programmed1, programmed2}, 1
	out = shrunkOutcome(t, func(*Options) ([]*lesson, error) { return []*lesson{l}, nil }, nothingMore)
	if len(out.Tables[0].Rows) != 3 {
		t.Errorf("%+v", out.Tables[0].Rows)
	}
}
