// Package reproduce makes published tables and figures again, beside the
// numbers that were published: one file each, and catalogue.go is their table.
//
// A reproduction is made of pieces, such as one mechanism at one size and seed.
// The result of each is saved as it is there, so that an interrupted
// reproduction goes on after the last of them, and one that is repeated is only
// drawn again. How large the pieces are is a matter of the budget.
package reproduce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/task"
)

// Budget is how much time a reproduction may take.
type Budget int

const (
	Quick Budget = iota // up to fifteen minutes on two cores
	Hour                // half an hour to half a day
	Full                // the published size and updates, but for what Row.Lacks names: up to months
)

var budgets = [...]string{"quick", "hour", "full"}

// String returns the budget's name.
func (b Budget) String() string { return budgets[b] }

// ParseBudget returns the budget called name. Another name is an error.
func ParseBudget(name string) (Budget, error) {
	if i := slices.Index(budgets[:], name); i >= 0 {
		return Budget(i), nil
	}
	return 0, fmt.Errorf("budget %q: there are %s", name, strings.Join(budgets[:], ", "))
}

// pick returns the value of a budget.
func pick[T any](b Budget, quick, hour, full T) T { return [...]T{quick, hour, full}[b] }

// Row is a published table or figure.
type Row struct {
	Name   string
	Doc    string // what is made
	Source string // the paper, and the place in it
	Claim  string // what is published, in a sentence or two
	Lacks  string // what of the published table no budget makes; "": nothing
	// Seeds reports that pieces are repeated with several seeds, Tunes that rates
	// of learning can be chosen on a grid.
	Seeds, Tunes bool
	Text         bool // it is of texts, in whose place the user's own may be read

	pieces  func(*Options) ([]Piece, error)
	outcome func(*Options, *Results) (*Outcome, error)
}

// Options say how a reproduction is made.
type Options struct {
	Budget Budget
	Seeds  int            // 0: the row's number for the budget
	Tune   bool           // try the same rates of learning for every mechanism
	Out    string         // folder of results, in which each row has one of its own
	Data   string         // folder of data sets
	Text   string         // file or folder that is read in place of a row's texts; "": none
	Build  Build          // of this program
	Only   *regexp.Regexp // names of the pieces that are run; nil: all
	// Remake reports records that are to be made again; nil: none.
	Remake func(*Record) bool
}

// seeds returns the seeds, which are n unless the options say otherwise.
func (o *Options) seeds(n int) []uint64 {
	if o.Seeds > 0 {
		n = o.Seeds
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = uint64(i + 1)
	}
	return list
}

// Piece is a part of a reproduction that is done or not, as a whole.
type Piece struct {
	Name   string        // of its file
	Config any           // everything that decides the result, as JSON
	FLOPs  float64       // counted operations
	Time   time.Duration // of work with a given time, such as measuring
	run    func(*Work) (any, error)
}

// plainLoopCost is the time of an operation of plain loops in operations of kernels.
const plainLoopCost = 50

// Seconds is how long a piece is expected to take on a machine whose peak was
// measured: half of the peak is assumed.
func (p *Piece) Seconds(m bench.Machine) float64 {
	return p.Time.Seconds() + m.TrainingSeconds(p.FLOPs)
}

// Work is what a piece may use while it runs.
type Work struct {
	Ctx    context.Context // ends on an interrupt
	Folder string          // for the files of a long piece
	watch  func(share float64)
}

// reportShare reports the finished share of the piece, between 0 and 1.
func (w *Work) reportShare(share float64) {
	if w.watch != nil {
		w.watch(share)
	}
}

// do calls f, which cannot be interrupted, and returns its error, or the context's error
// if that comes first; f then continues alone.
func (w *Work) do(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-w.Ctx.Done():
		return w.Ctx.Err()
	}
}

// Progress is the state of a reproduction.
type Progress struct {
	Row, Piece      string
	Finished, Total int           // pieces
	Share           float64       // of this piece
	TimeLeft        time.Duration // of all pieces, estimated
}

// Observer holds functions that a run calls. Fields may be nil.
type Observer struct {
	Progress func(Progress)
	Saved    func(*Record)
	Skipped  func(piece string, why error) // its data is not at hand
}

// Pieces returns the pieces of a row. It returns an error for options that the row cannot
// have.
func (r *Row) Pieces(o *Options) ([]Piece, error) {
	list, err := r.pieces(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Name, err)
	}
	return list, nil
}

// Run makes the pieces that are not there and returns what comes of all. Pieces
// whose data is not at hand are passed over; if there are no others, that is an
// error. When ctx ends, the piece at hand is given up and the error of ctx returned.
// Run owns the folder of the row; if another process does, that is a lock.HeldError.
func (r *Row) Run(ctx context.Context, o *Options, w Observer) (*Outcome, error) {
	pieces, err := r.Pieces(o)
	if err != nil {
		return nil, err
	}
	store := store{o.folder(r)}
	if err := atomicfile.MakeFolder(store.dir); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Name, err)
	}
	held, err := lock.LockFolder(store.dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Name, err)
	}
	defer held.Release()
	results := new(Results)
	var open []Piece
	for _, p := range pieces {
		record, err := store.load(&p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
		if record == nil || o.Remake != nil && o.Remake(record) {
			if o.Only == nil || o.Only.MatchString(p.Name) {
				open = append(open, p)
			} else {
				results.lack(&p)
			}
			continue
		}
		// A run that was killed behind its record has left its work.
		if err := store.end(store.work(&p)); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
		results.add(record)
	}
	clock := newClock(open)
	var absent error
	for i, p := range open {
		tell := func(share float64) {
			if w.Progress != nil {
				w.Progress(Progress{r.Name, p.Name, len(pieces) - len(open) + i, len(pieces), share, clock.timeLeft(i, share)})
			}
		}
		tell(0)
		record, err := store.make(ctx, o, &p, tell)
		if errors.Is(err, task.ErrNoData) {
			if results.lack(&p); absent == nil {
				absent = err
			}
			if w.Skipped != nil {
				w.Skipped(p.Name, err)
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", r.Name, p.Name, err)
		}
		results.add(record)
		if w.Saved != nil {
			w.Saved(record)
		}
	}
	if len(results.records) == 0 && absent != nil {
		return nil, fmt.Errorf("%s: %w", r.Name, absent)
	}
	return r.conclude(o, results)
}

// Saved returns the outcome of the saved pieces. It returns an error for a record that
// cannot be read.
func (r *Row) Saved(o *Options) (*Outcome, error) {
	pieces, err := r.Pieces(o)
	if err != nil {
		return nil, err
	}
	store := store{o.folder(r)}
	results := new(Results)
	for _, p := range pieces {
		record, err := store.load(&p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
		if record == nil {
			results.lack(&p)
			continue
		}
		results.add(record)
	}
	return r.conclude(o, results)
}

func (r *Row) conclude(o *Options, results *Results) (*Outcome, error) {
	out, err := r.outcome(o, results)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Name, err)
	}
	out.Name, out.Doc, out.Source, out.Claim, out.Lacks, out.Budget = r.Name, r.Doc, r.Source, r.Claim, r.Lacks, o.Budget.String()
	out.Command = r.command(o)
	out.Records, out.Missing, out.MissingHours = results.records, results.missing, results.lacking.Hours()
	return out, nil
}

// command is what was typed to make it.
func (r *Row) command(o *Options) string {
	text := "farfield-lab reproduce " + r.Name
	if o.Budget != Quick {
		text += " --budget " + o.Budget.String()
	}
	if o.Seeds > 0 {
		text += fmt.Sprintf(" --seeds %d", o.Seeds)
	}
	if o.Tune {
		text += " --tune"
	}
	if o.Text != "" {
		text += " --text " + o.Text
	}
	return text
}

// Results are the records of a row's pieces.
type Results struct {
	records []*Record
	missing []string
	lacking time.Duration // that the missing pieces take at assumedRate
}

// assumedRate is the speed in operations a second at which the hours of missing pieces are told.
const assumedRate = 50e9

// lack notes that a piece is missing.
func (r *Results) lack(p *Piece) {
	r.missing = append(r.missing, p.Name)
	r.lacking += p.Time + time.Duration(p.FLOPs/assumedRate*float64(time.Second))
}

func (r *Results) add(record *Record) { r.records = append(r.records, record) }

// get returns the result of a piece, if it is there.
func get[T any](r *Results, name string) (result T, found bool, err error) {
	for _, record := range r.records {
		if record.Piece == name {
			if err := json.Unmarshal(record.Result, &result); err != nil {
				return result, false, fmt.Errorf("result of %s: %w", name, err)
			}
			return result, true, nil
		}
	}
	return result, false, nil
}

// convert returns x, a value that JSON decoded as any, as a Y.
func convert[T any](x any) (y T, err error) {
	data, err := json.Marshal(x)
	if err != nil {
		return y, err
	}
	return y, json.Unmarshal(data, &y)
}

// clock estimates the remaining time from the expected and the measured times of pieces.
type clock struct {
	begin    time.Time
	expected []float64 // seconds of each piece, in the unit of a machine that does 1e11 operations a second
}

func newClock(pieces []Piece) *clock {
	c := &clock{begin: time.Now()}
	for i := range pieces {
		c.expected = append(c.expected, pieces[i].Time.Seconds()+pieces[i].FLOPs/1e11)
	}
	return c
}

func (c *clock) timeLeft(at int, share float64) time.Duration {
	done, left := 0.0, 0.0
	for i, s := range c.expected {
		switch {
		case i < at:
			done += s
		case i == at:
			done, left = done+share*s, left+(1-share)*s
		default:
			left += s
		}
	}
	if done > 0 {
		left *= time.Since(c.begin).Seconds() / done
	}
	return time.Duration(left * float64(time.Second))
}
