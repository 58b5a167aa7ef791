package reproduce

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/report"
)

var arenaAll = Row{
	Name:   "arena",
	Doc:    "accuracy on all five tasks of the Long Range Arena at published lengths, FAST's function as printed beside the one of its authors' program, and linear attention with masks beside the arena's without",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, tables 1 and 2; the program example.py of its authors",
	Claim:  "means of five tasks: softmax 57.37 %, Fastmax2 57.90, Fastmax1 57.62, linear 50.55; on ListOps 38.37, 37.40, 37.20 and 16.13",
	Lacks:  "Informer, Reformer and Performer, which listops and fast-fig5 have, and the released papers of Retrieval, in whose place pairs of film reviews stand where they are not at hand",
	Seeds:  true, Tunes: true,
	pieces: arenaPieces(arenaLessonsAll), outcome: arenaOutcome(arenaLessonsAll),
}

var arenaMinutes = Row{
	Name:   "arena-minutes",
	Doc:    "accuracy and speed on the two tasks of the Long Range Arena that fast-fig5 and listops lack, pairs of texts and Pathfinder, at published lengths within minutes",
	Source: arenaAll.Source,
	Claim:  "Retrieval: softmax 80.69 %, Fastmax2 78.11, Fastmax1 78.21, linear 53.09; Pathfinder: softmax 65.26 %, Fastmax2 66.55, Fastmax1 66.67, linear 75.30",
	Lacks:  "the released papers of Retrieval, in whose place pairs of film reviews stand where they are not at hand; as many updates as published",
	Seeds:  true, Tunes: true,
	pieces: arenaPieces(arenaLessonsMinutes), outcome: arenaOutcome(arenaLessonsMinutes),
}

// arenaTask is a task of the Long Range Arena.
type arenaTask struct {
	name, preset                  string
	length, vocab                 int
	steps                         [3]int
	batch, judged                 int
	first, firstBatch             int
	rate                          float64
	equal, hasPadding             bool
	softmax, fast1, fast2, linear float64
}

// arenaTasks are the tasks in the order of the table, with the published accuracies of
// arenaColumns in percent, and the updates of softmax in each budget; 0: not within it.
var arenaTasks = []arenaTask{
	{"listops", "lra-listops", 2000, 18, [3]int{20, 800, 5000}, 16, 5000, 128, 256, 2e-3, false, true, 38.37, 37.20, 37.40, 16.13},
	{"text", "lra-text", 4000, 257, [3]int{0, 1400, 20000}, 8, 0, 250, 128, 1e-3, true, true, 61.95, 63.25, 64.30, 65.90},
	{"retrieval", "lra-retrieval", 4000, 257, [3]int{0, 1500, 30000}, 4, 2000, 0, 0, 1e-3, true, true, 80.69, 78.21, 78.11, 53.09},
	{"image", "lra-image", 1024, 256, [3]int{0, 1400, 35000}, 32, 0, 0, 0, 1e-3, true, false, 40.57, 42.76, 43.18, 42.34},
	{"pathfinder", "lra-pathfinder", 1024, 256, [3]int{0, 1400, 62400}, 32, 0, 0, 0, 1e-3, true, false, 65.26, 66.67, 66.55, 75.30},
}

// arenaMethods are trained on every task.
var arenaMethods = []method{softmax, printed1, programmed1, printed2, programmed2, farThird2, linear, multipoleAdapted}

// paddedMark ends the names of lessons whose samples are padded without masks.
const paddedMark = "-padded"

// arenaLessonsAll give softmax about 40 minutes of a core on each task in the hour, and the
// others as long; on expressions all make as many updates as in fast-fig5.
var arenaLessonsAll = lessons(func(o *Options) (list []*lesson, _ error) {
	for i := range arenaTasks {
		x := &arenaTasks[i]
		steps := x.steps[o.Budget]
		if steps == 0 {
			continue
		}
		methods := arenaMethods
		if o.Budget == Quick {
			methods = []method{softmax, programmed1, programmed2}
		}
		l, err := x.lesson(o, x.name, steps, methods, x.equal)
		if err != nil {
			return nil, err
		}
		list = append(list, l)
		if x.hasPadding && o.Budget != Quick {
			if l, err = x.lesson(o, x.name+paddedMark, steps, []method{linearPadded}, false); err != nil {
				return nil, err
			}
			list = append(list, l)
		}
	}
	return list, nil
})

// arenaLessonsMinutes give softmax some minutes of a core on each of two tasks in the hour budget, and
// the others as long.
var arenaLessonsMinutes = lessons(func(o *Options) (list []*lesson, _ error) {
	for i := range arenaTasks {
		x := &arenaTasks[i]
		steps := map[string][3]int{"retrieval": {20, 80, 4000}, "pathfinder": {60, 250, 14000}}[x.name][o.Budget]
		if steps == 0 {
			continue
		}
		l, err := x.lesson(o, x.name, steps, []method{softmax, programmed1, programmed2, linear, farThird2}, true)
		if err != nil {
			return nil, err
		}
		l.Config.EvalSamples, l.Config.FinalSamples = 50, pick(o.Budget, 100, 400, 2000)
		l.Config.EvalEvery, l.Config.SaveEvery = max(1, steps/2), max(1, steps/4)
		list = append(list, l)
	}
	return list, nil
})

// lesson returns the lesson of a task in which softmax makes the given updates.
func (x *arenaTask) lesson(o *Options, name string, steps int, methods []method, equal bool) (*lesson, error) {
	l, err := presetLesson(name, x.preset, steps, nil)
	if err != nil {
		return nil, err
	}
	c := &l.Config
	if x.name == "retrieval" {
		c.SetTask(pairsTask(o))
		c.TaskSet = map[string]string{"length": fmt.Sprint(longText)}
		l.Length = 2 * longText
	}
	c.Batch, c.FirstContext, c.FirstBatch = x.batch, x.first, x.firstBatch
	c.Rate, c.EvalSamples, c.FinalSamples = x.rate, pick(o.Budget, 20, 500, 500), pick(o.Budget, 100, x.judged, x.judged)
	c.WarmUp = steps / 10
	c.EvalEvery, c.SaveEvery = max(1, steps/5), max(1, steps/40)
	if x.name == "pathfinder" && o.Budget != Full {
		c.TaskSet = map[string]string{"from": "generated"}
		c.FinalSamples = 2000
	}
	l.Methods, l.Seeds, l.EqualSeconds = methods, pick(o.Budget, 1, 1, 3), equal
	l.Length, l.Vocab, l.Baseline = max(l.Length, x.length), x.vocab, true
	return l, nil
}

// arenaPieces leave out the speed of padded samples, which are not compared.
func arenaPieces(of lessons) func(*Options) ([]Piece, error) {
	return func(o *Options) ([]Piece, error) {
		list, err := speedPieces(of, o)
		return slices.DeleteFunc(list, func(p Piece) bool { return strings.HasSuffix(p.Name, speedPiece(&lesson{Name: paddedMark})) }), err
	}
}

// arenaRow is what a mechanism has on the tasks.
type arenaRow struct {
	accuracy, published map[string]float64 // in percent, by task
	speed               map[string]float64 // of an update over softmax's, by task
	seeds               int
}

func arenaOutcome(of lessons) func(*Options, *Results) (*Outcome, error) {
	return func(o *Options, r *Results) (*Outcome, error) {
		return of.outcome(func(out *Outcome, list []scored) error { return out.arena(r, list) })(o, r)
	}
}

// arena puts what mechanisms have on all tasks into one table.
func (out *Outcome) arena(r *Results, list []scored) error {
	rows := map[string]*arenaRow{}
	var order []string
	race := arenaTable()
	cost := report.Table{
		Title: "Processor time of a training", Head: []string{"training", "mechanism", "updates", "seconds", "ms an update"},
		Note: "Of whole trainings with their validations, on one thread, while other programs ran.",
	}
	for i := range list {
		s := &list[i]
		name := strings.TrimSuffix(s.Name, paddedMark)
		speeds, _, err := get[[]updateSpeed](r, speedPiece(s.lesson))
		if err != nil {
			return err
		}
		if name == s.Name {
			out.compareArena(&race, s, speeds)
		}
		paces := map[string]float64{}
		for _, v := range speeds {
			if v.Ms > 0 && v.Shape.Context == s.Length {
				paces[v.Curve] = v.Ms / float64(v.Shape.Batch)
			}
		}
		for _, x := range s.Results {
			row := rows[x.Label]
			if row == nil {
				row = &arenaRow{map[string]float64{}, arenaPublished5(x.Label), map[string]float64{}, len(x.Runs)}
				rows[x.Label], order = row, append(order, x.Label)
			}
			row.accuracy[name], row.seeds = 100*x.Value, min(row.seeds, len(x.Runs))
			if a, b := paces[softmax.Label], paces[x.Label]; a > 0 && b > 0 {
				row.speed[name] = a / b
			}
			if run := x.Runs[0]; run.Cost > 0 && len(run.Steps) > 0 {
				updates := run.Steps[len(run.Steps)-1].Step
				addRow(&cost, s.Name, x.Label, fmt.Sprint(updates), fmt.Sprintf("%.0f", run.Cost), digits(1e3*run.Cost/float64(updates)))
			}
		}
	}
	if len(race.Rows) > 0 {
		out.Tables = append(out.Tables, race)
	}
	t := report.Table{Title: "Accuracy in percent, published and here", Head: []string{"mechanism"},
		Note: "A cell has the published number, then ours. The mean is of all five tasks, and is left out where one of them is not trained. Speed: updates of the longest samples a second over softmax's, the geometric mean over the tasks that were timed in turns. " +
			"The published Fastmax is one row of the paper; whether it is the printed function or the program's is not said. Published linear attention is the arena's own, padded without masks, which `farfield-lab reproduce arena --budget hour --pieces '^listops-padded'` trains within minutes of one core."}
	for _, x := range arenaTasks {
		t.Head = append(t.Head, x.name)
	}
	t.Head = append(t.Head, "mean", "speed", "seeds")
	for _, label := range order {
		row := rows[label]
		cells := []string{label}
		for _, x := range arenaTasks {
			cells = append(cells, both(row.published, row.accuracy, x.name))
		}
		cells = append(cells, both(row.published, row.accuracy, ""))
		speed := none
		if len(row.speed) > 0 {
			sum := 0.0
			for _, v := range row.speed {
				sum += math.Log(v) / float64(len(row.speed))
			}
			speed = digits(math.Exp(sum))
		}
		addRow(&t, append(cells, speed, fmt.Sprint(row.seeds))...)
	}
	out.Tables = append([]report.Table{t}, out.Tables...)
	if len(cost.Rows) > 0 {
		out.Tables = append(out.Tables, cost)
	}
	for _, pair := range [][2]string{{printed1.Label, programmed1.Label}, {printed2.Label, programmed2.Label}, {linear.Label, linearPadded.Label}} {
		a, b := rows[pair[0]], rows[pair[1]]
		if a == nil || b == nil {
			continue
		}
		for _, x := range arenaTasks {
			if v, is := a.accuracy[x.name]; is {
				if w, is := b.accuracy[x.name]; is {
					out.find("%s: %s %.2f %%, %s %.2f %%.", x.name, pair[0], v, pair[1], w)
				}
			}
		}
	}
	return nil
}

// arenaPublished5 returns the published accuracies of a mechanism by task.
func arenaPublished5(label string) map[string]float64 {
	all := map[string]float64{}
	for _, x := range arenaTasks {
		switch label {
		case softmax.Label:
			all[x.name] = x.softmax
		case printed1.Label, programmed1.Label:
			all[x.name] = x.fast1
		case printed2.Label, programmed2.Label:
			all[x.name] = x.fast2
		case linearPadded.Label:
			all[x.name] = x.linear
		case linear.Label:
			if !x.hasPadding {
				all[x.name] = x.linear
			}
		}
	}
	return all
}

// both writes the published number and ours of a task, or their means over all tasks for "".
func both(published, here map[string]float64, name string) string {
	cell := func(all map[string]float64) string {
		if name != "" {
			if v, is := all[name]; is {
				return fmt.Sprintf("%.2f", v)
			}
			return none
		}
		sum := 0.0
		for _, x := range arenaTasks {
			v, is := all[x.name]
			if !is {
				return none
			}
			sum += v / float64(len(arenaTasks))
		}
		return fmt.Sprintf("%.2f", sum)
	}
	if len(published) == 0 {
		return cell(here)
	}
	return cell(published) + "; " + cell(here)
}
