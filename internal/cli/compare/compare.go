// Package compare implements the verb compare: runs side by side.
package compare

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// compareFile is the page of runs that lie in several folders.
const compareFile = "compare.html"

// Bounds of the search of a folder, and of curves.
const (
	mostRuns     = 1000
	deepestRun   = 3  // folders below the one that is given
	markedPoints = 40 // points of a curve with a mark at each
)

// Command is the verb compare: it compares runs on one page.
type Command struct {
	Out  string `short:"o" placeholder:"FILE" help:"Page to write (compare.html)."`
	JSON bool   `name:"json" help:"Print the comparison as JSON."`

	Folders []string `arg:"" name:"run" help:"Folders of runs, or folders that hold runs."`
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "Runs that differ only in the seed form one row, with mean and deviation. The best row is marked, and so are rows whose difference from it may be chance (Student's t over the seeds, 95 % for all rows together). With two seeds only large differences show." + flags.JoinExamples(
		"farfield compare run/001 run/002",
		"farfield compare --out mechanisms.html run",
	)
}

// Run writes the page of the compared runs. It returns an error if a folder has no
// runs, a run cannot be read or the page cannot be written.
func (c *Command) Run(e *env.Env) error {
	if c.Out == "" {
		c.Out = compareFile
	}
	var list []string
	for _, dir := range c.Folders {
		runs, err := FindRuns(dir)
		if err != nil {
			return env.MarkInput(err)
		}
		list = append(list, runs...)
	}
	if err := CheckPage(c.Out, list...); err != nil {
		return env.InputErrorf("--out: %w", err)
	}
	x, err := compareRuns(list)
	if err != nil {
		return env.MarkInput(err)
	}
	if err := atomicfile.Write(c.Out, x.page("Comparison of runs").WriteHTML); err != nil {
		return err
	}
	if c.JSON {
		return display.PrintJSON(e.Stdout, x)
	}
	if err := x.print(e); err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.Stdout, "page        %s\n", c.Out)
	return err
}

// CheckPage returns an error if the page at path cannot be written, or would replace a file in the
// folders of runs that is not a page.
func CheckPage(path string, runs ...string) error {
	var inputs []string
	for _, dir := range runs {
		inputs = append(inputs, env.ListFiles(dir, func(name string) bool { return filepath.Ext(name) != ".html" })...)
	}
	return env.CheckOutput(path, inputs...)
}

// FindRuns returns dir if it is the folder of a run, or otherwise the runs in dir. It returns an
// error if dir is empty or cannot be read.
func FindRuns(dir string) (list []string, err error) {
	if dir == "" {
		return nil, errors.New("run: its name is empty; . is the current folder")
	}
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err == nil {
		return []string{dir}, nil
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s: is a file; runs are folders, and %s stands for all runs in it", dir, filepath.Dir(dir))
	}
	root := filepath.Clean(dir) // with /. after it a link to a folder is followed
	err = filepath.WalkDir(root+"/.", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if _, err := os.Stat(filepath.Join(path, "metrics.jsonl")); err == nil {
			if list = append(list, path); len(list) > mostRuns {
				return fmt.Errorf("%s: holds more than %d runs", dir, mostRuns)
			}
			return fs.SkipDir
		}
		below, err := filepath.Rel(root, path)
		if err == nil && strings.Count(below, string(filepath.Separator)) >= deepestRun-1 && below != "." {
			return fs.SkipDir
		}
		return err
	})
	if len(list) == 0 && (err == nil || errors.Is(err, fs.ErrNotExist)) {
		_, err = runs.ReadRunConfig(dir) // which says that there is none
	}
	return list, err
}

// Comparison compares runs of one task.
type Comparison struct {
	Task      string          `json:"task"`
	Metric    string          `json:"metric"`
	Verdict   string          `json:"verdict"`
	Differing []string        `json:"differing"` // names of settings
	Groups    []*runGroup     `json:"groups"`    // the best first
	Baselines []task.Baseline `json:"baselines,omitempty"`
	Note      string          `json:"note,omitempty"`

	measure runs.Measure
	common  [][2]string // settings of all, by name
}

// runGroup is runs that differ in nothing but the seed.
type runGroup struct {
	Name      string         `json:"name"`
	Settings  []settingValue `json:"settings"` // that differ between groups
	Runs      []comparedRun  `json:"runs"`
	Seeds     int            `json:"seeds"` // that have ended, each counted once
	Mean      float64        `json:"mean"`  // of their scores
	Deviation float64        `json:"deviation"`
	Loss      float64        `json:"loss"` // mean
	Seconds   float64        `json:"seconds"`
	Result    string         `json:"result"`

	rows     [][2]string
	runs     []*runs.TrainedRun
	standard float64 // error of the mean; 0: not known
	freedom  float64 // degrees of freedom of standard
	sampled  float64 // error of a mean squared error over its samples; 0: not known
	targets  int64   // independent targets of a score
}

type settingValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// comparedRun is one run of a group.
type comparedRun struct {
	Run     string   `json:"run"`
	Seed    uint64   `json:"seed"`
	Updates int      `json:"updates"`
	Score   *float64 `json:"score"` // null: it has not ended
	Loss    *float64 `json:"loss"`
	Seconds float64  `json:"seconds"`
}

// Results of a group beside better, the same and worse.
const (
	resultBest    = "best"
	resultOneSeed = "one seed: may be chance"
	resultOpen    = "not finished"
)

// compareRuns reads the runs in folders.
func compareRuns(list []string) (*Comparison, error) {
	x := &Comparison{Differing: []string{}}
	var all []*runs.TrainedRun
	var sums []string // of the data of each run
	var first *runs.TrainedRun
	seen := map[string]bool{}
	for _, dir := range list {
		if path, err := filepath.Abs(dir); err != nil || seen[path] {
			continue
		} else {
			seen[path] = true
		}
		r, err := runs.ReadRun(dir)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first, x.Task = r, r.Config.Task
		}
		if r.Config.Task != first.Config.Task {
			return nil, fmt.Errorf("%s: task is %s, that of %s is %s; their scores cannot be compared", r.Dir, r.Config.Task, first.Dir, first.Config.Task)
		}
		if n := len(r.History.Evals); n > 0 {
			_, m := runs.JudgedScore(r.History.Evals[n-1].Score)
			if x.Metric == "" {
				x.measure, x.Metric = m, m.Name
			}
			if m.Name != x.Metric {
				return nil, fmt.Errorf("%s: metric is %s, that of %s is %s; they cannot be compared", r.Dir, m.Name, first.Dir, x.Metric)
			}
		}
		sum, err := train.DataSum(dir)
		if err != nil {
			return nil, err
		}
		all, sums = append(all, r), append(sums, sum)
	}
	kinds := map[bool]bool{}
	for _, sum := range sums {
		kinds[task.IsWholeDigest(sum)] = true
	}
	if slices.Contains(sums, "") || len(kinds) > 1 { // nothing is known of the data of a run, or not the same of all
		clear(sums)
	}
	for i, r := range all {
		if err := x.add(r, sums[i]); err != nil {
			return nil, err
		}
	}
	x.settings()
	for _, g := range x.Groups {
		g.summarise(x.measure)
	}
	x.baselines()
	x.decide()
	return x, nil
}

// dataRow is the name of the row with the SHA-256 of the data.
const dataRow = "data"

// add puts a run into the group of its configuration and of the SHA-256 of its data; "": not
// known.
func (x *Comparison) add(r *runs.TrainedRun, sum string) error {
	c := r.Config
	c.Seed, c.Folder = 0, "" // data sets lie anywhere
	rows, err := report.FlattenFields(c)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Dir, err)
	}
	if sum != "" {
		rows = append(rows, [2]string{dataRow, fmt.Sprintf("%.12s…", sum)})
	}
	i := slices.IndexFunc(x.Groups, func(g *runGroup) bool { return slices.Equal(g.rows, rows) })
	if i < 0 {
		i = len(x.Groups)
		x.Groups = append(x.Groups, &runGroup{rows: rows, Settings: []settingValue{}})
	}
	x.Groups[i].runs = append(x.Groups[i].runs, r)
	return nil
}

// value returns the value of a setting, – where the group has none.
func (g *runGroup) value(name string) string {
	for _, row := range g.rows {
		if row[0] == name {
			return row[1]
		}
	}
	return "–"
}

// settings finds which settings differ, and names groups by as few as tell them apart.
func (x *Comparison) settings() {
	var names []string
	for _, g := range x.Groups {
		for _, row := range g.rows {
			if !slices.Contains(names, row[0]) {
				names = append(names, row[0])
			}
		}
	}
	const mechanism = "model.mechanism"
	place := func(name string) int {
		switch {
		case strings.Contains(name, mechanism):
			return 0
		case name == dataRow: // settings that change the samples explain it
			return 2
		}
		return 1
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(place(a), place(b)) })
	for _, name := range names {
		distinct := map[string]bool{}
		for _, g := range x.Groups {
			distinct[g.value(name)] = true
		}
		if len(distinct) > 1 {
			x.Differing = append(x.Differing, name)
		} else if name != "seed" {
			x.common = append(x.common, [2]string{name, x.Groups[0].value(name)})
		}
	}
	parts := make([][]string, len(x.Groups))
	told := func() int { // the number of distinct groups
		all := map[string]bool{}
		for _, p := range parts {
			all[strings.Join(p, "\x00")] = true
		}
		return len(all)
	}
	for _, name := range x.Differing {
		before := told()
		for i, g := range x.Groups {
			text := g.value(name)
			g.Settings = append(g.Settings, settingValue{name, text})
			if name != mechanism {
				text = shortSetting(name) + "=" + text
			}
			parts[i] = append(parts[i], text)
		}
		if told() == before {
			for i := range parts {
				parts[i] = parts[i][:len(parts[i])-1]
			}
		}
	}
	for i, g := range x.Groups {
		g.Name = cmp.Or(strings.Join(parts[i], " "), cmp.Or(g.value(mechanism), x.Task))
	}
}

// shortSetting is the name of a setting as a reader of a table needs it.
func shortSetting(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "model."), "set.")
}

// summarise sets means and deviation, with n - 1, over the seeds that have ended.
func (g *runGroup) summarise(m runs.Measure) {
	slices.SortStableFunc(g.runs, func(a, b *runs.TrainedRun) int { return cmp.Compare(a.Config.Seed, b.Config.Seed) })
	var scores []float64
	counted := map[uint64]bool{}
	for _, r := range g.runs {
		one := comparedRun{Run: r.Dir, Seed: r.Config.Seed, Updates: r.CountUpdates(), Seconds: r.TotalSeconds()}
		if r.Final != nil {
			score, _ := runs.JudgedScore(r.Final.Score)
			one.Score, one.Loss = &score, &r.Final.Loss
			if !counted[one.Seed] {
				counted[one.Seed] = true
				scores = append(scores, score)
				g.targets = runs.IndependentTargets(r.Final.Score)
				if r.Final.Metric == task.MSE {
					g.sampled = r.Final.Error
				}
				g.Loss += r.Final.Loss
				g.Seconds += one.Seconds
			}
		}
		g.Runs = append(g.Runs, one)
	}
	g.Seeds = len(scores)
	if g.Seeds == 0 {
		g.Result = resultOpen
		return
	}
	n := float64(g.Seeds)
	g.Loss /= n
	g.Seconds /= n
	g.Mean, g.Deviation = MeanDeviation(scores)
	g.standard, g.freedom = g.Deviation/math.Sqrt(n), n-1
	if sampled := max(m.SamplingError(g.Mean, g.targets), g.sampled); sampled > g.standard {
		g.standard, g.freedom = sampled, math.Inf(1)
	}
}

// MeanDeviation returns the mean of list [n] and its standard deviation with n - 1.
func MeanDeviation(list []float64) (mean, deviation float64) {
	n := float64(len(list))
	for _, x := range list {
		mean += x / n
	}
	if n < 2 {
		return mean, 0
	}
	for _, x := range list {
		deviation += (x - mean) * (x - mean) / (n - 1)
	}
	return mean, math.Sqrt(deviation)
}

// baselines takes the baselines of the runs, if all have the same.
func (x *Comparison) baselines() {
	for _, name := range x.Differing {
		// Models of other tokens give the same texts another SHA-256.
		hasOtherData := name == dataRow && !slices.Contains(x.Differing, "init")
		if name == "data_seed" || strings.HasPrefix(name, "task_set.") || hasOtherData || name == "final_samples" && x.hasUnequalSamples() {
			x.Note = fmt.Sprintf("The runs differ in %s: their scores are not of the same samples.", name)
			return
		}
	}
	for _, g := range x.Groups {
		for _, r := range g.runs {
			if r.Result == nil || len(r.Result.ComparedBaselines()) == 0 {
				continue
			}
			list := r.Result.ComparedBaselines()
			if x.Baselines == nil {
				x.Baselines = list
			}
			if x.Note = r.Result.SampleNote(); x.Note == "" && !slices.EqualFunc(x.Baselines, list, hasSameScore) {
				x.Note = "The runs differ in their baselines, as runs of other tokens do: none is compared."
			}
			if x.Note != "" {
				x.Baselines = nil
				return
			}
		}
	}
}

// hasSameScore reports that a and b are the same baseline.
func hasSameScore(a, b task.Baseline) bool { return a.Name == b.Name && a.Score == b.Score }

// hasUnequalSamples reports whether final scores are of different numbers of samples.
func (x *Comparison) hasUnequalSamples() bool {
	counts := map[int64]bool{}
	for _, g := range x.Groups {
		for _, r := range g.runs {
			if r.Final != nil {
				counts[r.Final.Samples] = true
			}
		}
	}
	return len(counts) > 1
}

// decide sorts the groups, marks them and says which is the best.
func (x *Comparison) decide() {
	m := x.measure
	slices.SortStableFunc(x.Groups, func(a, b *runGroup) int {
		switch {
		case a.Seeds == 0 || b.Seeds == 0:
			return cmp.Compare(min(b.Seeds, 1), min(a.Seeds, 1))
		case m.IsBetter(a.Mean, b.Mean):
			return -1
		case m.IsBetter(b.Mean, a.Mean):
			return 1
		}
		return 0
	})
	best := x.Groups[0]
	if best.Seeds == 0 {
		x.Verdict = "No run has ended."
		return
	}
	best.Result = resultBest
	var ended, close []*runGroup
	rows := -1 // compared with the best
	for _, g := range x.Groups {
		rows += min(g.Seeds, 1)
	}
	for _, g := range x.Groups[1:] {
		if g.Seeds == 0 {
			continue
		}
		ended = append(ended, g)
		if g.Result = m.CompareScores(g.Mean, best.Mean, g.differenceFrom(best, rows)); g.Result == runs.ResultSame {
			close = append(close, g)
		} else if min(g.Seeds, best.Seeds) == 1 {
			g.Result = resultOneSeed
			close = append(close, g)
		}
	}
	mean := fmt.Sprintf("%s %s", m.Name, best.score(m))
	switch {
	case len(ended) == 0:
		x.Verdict = fmt.Sprintf("%s: %s over %s.", best.Name, mean, display.Pluralise(best.Seeds, "seed"))
	case len(close) == 0:
		x.Verdict = fmt.Sprintf("%s is best: %s against %s of %s.", best.Name, mean, ended[0].score(m), ended[0].Name)
	case close[0].Result == resultOneSeed && best.Seeds > 1:
		x.Verdict = fmt.Sprintf("%s has the best score: %s against %s of %s, of one seed. Another seed may turn that around.", best.Name, mean, close[0].score(m), close[0].Name)
	case close[0].Result == resultOneSeed:
		x.Verdict = fmt.Sprintf("%s has the best score, of one seed: %s against %s of %s. Another seed may turn that around.", best.Name, mean, close[0].score(m), close[0].Name)
	default:
		x.Verdict = fmt.Sprintf("No difference between %s and %s: %s and %s, less than %s standard errors apart.", best.Name, close[0].Name, mean, close[0].score(m), close[0].differenceFrom(best, rows).FormatFactor())
		n := 0
		for _, g := range close[1:] {
			if g.Result == runs.ResultSame {
				n++
			}
		}
		if n > 0 {
			x.Verdict += fmt.Sprintf(" So %s.", map[bool]string{true: "is 1 other", false: fmt.Sprintf("are %d others", n)}[n == 1])
		}
		best.Result = runs.ResultSame
	}
	if b, ok := runs.FindBestBaseline(x.Baselines, m); ok {
		other := &runGroup{standard: m.SamplingError(b.Score, best.targets), freedom: math.Inf(1)}
		if m.Metric == task.MSE {
			other.standard = b.Error
		}
		v := runs.NewVerdict(best.Mean, m, b, best.differenceFrom(other, 1))
		x.Verdict += " " + v.Text
	}
}

// differenceFrom is the error of the difference of two means, one of several comparisons, with the
// degrees of freedom of Welch and Satterthwaite.
func (g *runGroup) differenceFrom(other *runGroup, comparisons int) runs.Difference {
	a, b := g.standard*g.standard, other.standard*other.standard
	d := runs.Difference{Standard: math.Hypot(g.standard, other.standard), Freedom: math.Inf(1), Comparisons: comparisons}
	if uncertain := a*a/max(g.freedom, 1) + b*b/max(other.freedom, 1); uncertain > 0 {
		d.Freedom = (a + b) * (a + b) / uncertain
	}
	return d
}

// score is the mean with its deviation, as text.
func (g *runGroup) score(m runs.Measure) string {
	switch {
	case g.Seeds == 0:
		return "–"
	case g.Seeds == 1:
		return m.FormatScore(g.Mean)
	case m.Metric == task.Accuracy:
		return fmt.Sprintf("%.1f ± %.1f %%", 100*g.Mean, 100*g.Deviation)
	}
	return fmt.Sprintf("%s ± %.2g", m.FormatScore(g.Mean), g.Deviation)
}

// table is a row for each group.
func (x *Comparison) table() *report.Table {
	t := &report.Table{Head: []string{"runs", x.Metric, "result", "seeds", "loss", "seconds", "folders"}}
	for _, g := range x.Groups {
		loss, seconds := "–", "–"
		if g.Seeds > 0 {
			loss, seconds = display.FormatValue(x.measure.Metric, g.Loss), fmt.Sprintf("%.3g", g.Seconds)
		}
		t.Rows = append(t.Rows, []string{g.Name, g.score(x.measure), g.Result, strconv.Itoa(g.Seeds), loss, seconds, g.folders()})
	}
	for _, b := range x.Baselines {
		t.Rows = append(t.Rows, []string{"baseline " + b.Name, x.measure.FormatScore(b.Score), "", "", "", "", ""})
	}
	return t
}

// shownFolders bounds the folders that a row names.
const shownFolders = 3

// folders names the folders of the group's runs.
func (g *runGroup) folders() string {
	var list []string
	for _, r := range g.Runs {
		list = append(list, r.Run)
	}
	if n := len(list); n > shownFolders {
		list = append(list[:shownFolders:shownFolders], fmt.Sprintf("%d more", n-shownFolders))
	}
	return strings.Join(list, ", ")
}

// differences has the settings that differ, a column for each.
func (x *Comparison) differences() *report.Table {
	t := &report.Table{}
	for _, name := range x.Differing {
		t.Head = append(t.Head, shortSetting(name))
	}
	for _, g := range x.Groups {
		var row []string
		for _, s := range g.Settings {
			row = append(row, s.Value)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// print writes verdict and tables.
func (x *Comparison) print(e *env.Env) error {
	fmt.Fprintf(e.Stdout, "verdict     %s\n", display.Field(x.Verdict))
	if x.Note != "" {
		fmt.Fprintf(e.Stdout, "note        %s\n", display.Field(x.Note))
	}
	table := func(t *report.Table) error {
		w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{t.Head}, t.Rows...) {
			for i, cell := range row {
				if row[i] = display.Field(cell); cell == "" {
					row[i] = "–"
				}
			}
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		return w.Flush()
	}
	if err := table(x.table()); err != nil || len(x.Differing) < 2 {
		return err
	}
	fmt.Fprintln(e.Stdout, "\nwhat differs")
	return table(x.differences())
}

// page lays the runs over each other.
func (x *Comparison) page(title string) *report.Page {
	p := &report.Page{Title: title, Verdict: x.Verdict, Lead: x.Note, Origin: report.DescribeBuild("farfield compare")}
	p.Origin.Config = x.common
	n := 0
	for _, g := range x.Groups {
		n += len(g.Runs)
	}
	p.Lead = strings.TrimSpace(fmt.Sprintf("%s of the task %s in %s.\n\n%s", display.Pluralise(n, "run"), x.Task, display.Pluralise(len(x.Groups), "setting"), x.Note))
	t := x.table()
	t.Note = "Means over seeds, ± their standard deviation. No difference: the means may be apart by chance, by Student's t over the seeds with 95 % for all rows together. " +
		"The error of a mean is that over the seeds, and of accuracy at least that of the samples."
	p.Sections = append(p.Sections, report.Section{Title: "Scores", Table: t})
	p.Sections = append(p.Sections, x.curves()...)
	if len(x.Differing) > 1 {
		p.Sections = append(p.Sections, report.Section{Title: "What differs", Table: x.differences()})
	}
	runs := &report.Table{Head: []string{"run", "setting", "seed", x.Metric, "loss", "updates", "seconds"}}
	for _, g := range x.Groups {
		for _, r := range g.Runs {
			score, loss := "–", "–"
			if r.Score != nil {
				score, loss = x.measure.FormatScore(*r.Score), display.FormatValue(x.measure.Metric, *r.Loss)
			}
			runs.Rows = append(runs.Rows, []string{r.Run, g.Name, strconv.FormatUint(r.Seed, 10), score, loss, strconv.Itoa(r.Updates), fmt.Sprintf("%.3g", r.Seconds)})
		}
	}
	p.Sections = append(p.Sections, report.Section{Title: "Runs", Table: runs})
	return p
}

// curvePoint is a place of a run's curve.
type curvePoint struct{ step, second, loss, score float64 }

// trainingPoints are the means of the training's losses.
func trainingPoints(r *runs.TrainedRun) (all []curvePoint) {
	for _, some := range runs.SplitRestarts(r.History.Steps) {
		p := curvePoint{step: float64(some[len(some)-1].Step), second: some[len(some)-1].Elapsed}
		for _, s := range some {
			p.loss += s.Loss / float64(len(some))
		}
		all = append(all, p)
	}
	return all
}

// scorePoint is the place of an evaluation.
func scorePoint(v *train.Eval) curvePoint {
	score, _ := runs.JudgedScore(v.Score)
	return curvePoint{float64(v.Step), v.Elapsed, v.Loss, score}
}

// validationPoints are the looks at the validation part, with the final score if it is of that part.
func validationPoints(r *runs.TrainedRun) (all []curvePoint) {
	for _, v := range r.Validations() {
		all = append(all, scorePoint(&v))
	}
	if f := r.Final; f != nil && f.Split == task.Valid.String() && (len(all) == 0 || all[len(all)-1].step < float64(f.Step)) {
		all = append(all, scorePoint(f))
	}
	return all
}

// testPoints are the final score if it is of another part than the validation.
func testPoints(r *runs.TrainedRun) []curvePoint {
	if r.Final == nil || r.Final.Split == task.Valid.String() {
		return nil
	}
	return []curvePoint{scorePoint(r.Final)}
}

// curves are the losses of training, the looks at the validation part and the final scores over
// updates and over seconds, in one colour for each group.
func (x *Comparison) curves() (list []report.Section) {
	add := func(title, across, up string, points func(*runs.TrainedRun) []curvePoint, at func(curvePoint) (x, y float64), baselines []task.Baseline) {
		f := &report.Figure{Title: title, XLabel: across, YLabel: up, XLinear: true, YLinear: true}
		low, high := math.Inf(1), math.Inf(-1)
		for _, g := range x.Groups {
			name := g.Name
			for _, r := range g.runs {
				s := report.Series{Name: name, Colour: g.Name, Mark: g.Name, Style: report.SolidLine}
				for _, p := range points(r) {
					x, y := at(p)
					s.X, s.Y = append(s.X, x), append(s.Y, y)
					low, high = min(low, x), max(high, x)
				}
				if len(s.X) > markedPoints || len(g.runs) > 1 && len(s.X)*len(g.runs) > markedPoints {
					s.Style = report.PlainLine
				}
				if len(s.X) > 0 {
					f.Series = append(f.Series, s)
					name = "" // once in the legend
				}
			}
		}
		if len(f.Series) > 0 {
			if low == high { // a line from the beginning to the one point
				low = 0
			}
			f.Series = append(f.Series, runs.BaselineSeries(baselines, x.measure, low, high)...)
			list = append(list, report.Section{Figure: f})
		}
	}
	loss := func(of func(curvePoint) float64) func(curvePoint) (float64, float64) {
		return func(p curvePoint) (float64, float64) { return of(p), p.loss }
	}
	score := func(of func(curvePoint) float64) func(curvePoint) (float64, float64) {
		return func(p curvePoint) (float64, float64) { return of(p), p.score }
	}
	step := func(p curvePoint) float64 { return p.step }
	second := func(p curvePoint) float64 { return p.second }
	add("Training loss over updates", "updates", "loss", trainingPoints, loss(step), nil)
	add("Training loss over seconds", "seconds", "loss", trainingPoints, loss(second), nil)
	for _, part := range []struct {
		name   string
		points func(*runs.TrainedRun) []curvePoint
	}{{"Validation", validationPoints}, {"Final", testPoints}} {
		add(part.name+" loss over updates", "updates", "loss", part.points, loss(step), nil)
		add(part.name+" loss over seconds", "seconds", "loss", part.points, loss(second), nil)
		if x.measure.Metric == task.Accuracy {
			add(part.name+" accuracy over updates", "updates", x.Metric, part.points, score(step), x.Baselines)
			add(part.name+" accuracy over seconds", "seconds", x.Metric, part.points, score(second), x.Baselines)
		}
	}
	if len(list) > 0 {
		list[0].Title = "Curves"
	}
	return list
}

// WriteComparison compares the runs in list, which lie in the folder dir, writes the page to out
// and returns the comparison. It returns an error if a run cannot be read or the page cannot be
// written.
func WriteComparison(out, dir string, list []string) (*Comparison, error) {
	x, err := compareRuns(list)
	if err != nil {
		return nil, err
	}
	return x, atomicfile.Write(out, x.page("Runs of "+filepath.Base(filepath.Clean(dir))).WriteHTML)
}
