//go:build linux

package attacks

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
)

// An attack is a kind of try.
type attack struct {
	name  string
	tries int // by default
	// skip returns why the attack is impossible here; "" if it is possible.
	skip func(l *lab) string
	// try makes a try. weight is the number of tries that it stands for, 0 where the
	// attack has missed its moment. What did not hold is an error.
	try func(t *trial) (weight int, err error)
}

// allAttacks returns all of them, in the order of the table.
func allAttacks() []attack { return append(append(readAttacks(), killAttacks()...), worldAttacks()...) }

// A record holds the results of an attack.
type record struct {
	Attack   string    `json:"attack"`
	Seed     uint64    `json:"seed"`
	Program  string    `json:"program"` // the beginning of a SHA-256
	Commit   string    `json:"commit"`
	Date     string    `json:"date"`
	Next     int       `json:"next"`           // number of the try that comes next
	Tries    int       `json:"tries"`          // those that counted
	Base     int64     `json:"base,omitempty"` // largest peak of memory on intact files
	Peak     int64     `json:"peak,omitempty"` // the same on damaged ones
	Skipped  string    `json:"skipped,omitempty"`
	Failures []failure `json:"failures,omitempty"`
}

type failure struct {
	Try  int    `json:"try"`
	What string `json:"what"`
}

// Run makes the tries that args ask for and prints what became of them. It returns an error
// if an argument is wrong or a try failed.
func Run(ctx context.Context, args []string, stdout io.Writer) error {
	f := flag.NewFlagSet("attacks", flag.ContinueOnError)
	only := f.String("only", "", "attacks whose name matches")
	tries := f.Int("tries", 0, "tries of each attack; 0: as many as it has by default")
	seed := f.Uint64("seed", 1, "seed of all tries")
	one := f.Int("try", -1, "make this try alone, and keep its files")
	path := f.String("page", "", "page to write the table into")
	work := f.String("work", filepath.Join(os.TempDir(), "farfield-attacks"), "folder of results and of the tries")
	parallel := f.Int("parallel", runtime.NumCPU(), "tries at a time")
	list := f.Bool("list", false, "print the names of all attacks")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q: no arguments but flags", f.Arg(0))
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if *list {
		for _, a := range allAttacks() {
			fmt.Fprintln(stdout, a.name)
		}
		return nil
	}
	// The machine is its user's first.
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 10)
	l, err := openLab(ctx, *work, *seed)
	if err != nil {
		return err
	}
	defer l.closeLab()
	failed, ran := 0, 0
	for _, a := range allAttacks() {
		if !chosen.MatchString(a.name) {
			continue
		}
		ran++
		if *one >= 0 {
			_, weight, err := l.runOneTry(ctx, &a, *one, true)
			fmt.Fprintf(stdout, "%s, try %d: weight %d: %v\nfiles: %s\n", a.name, *one, weight, err, l.place(&a, *one))
			continue
		}
		r, err := l.runAttack(ctx, &a, triesOf(&a, *tries), max(*parallel, 1), stdout)
		if err != nil {
			return err
		}
		failed += len(r.Failures)
	}
	if ran == 0 {
		return fmt.Errorf("-only: no attack matches %q", *only)
	}
	if damage := l.damaged(); damage != "" {
		return fmt.Errorf("something was written outside the tries' folders: %s", damage)
	}
	if *path != "" {
		records, err := l.allRecords()
		if err != nil {
			return err
		}
		if err := written.WriteFile(*path, writeTable(records)); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d tries failed", failed)
	}
	return nil
}

// triesOf returns the number of tries of an attack.
func triesOf(a *attack, tries int) int {
	if tries > 0 {
		return min(tries, a.tries)
	}
	return a.tries
}

// shown is the number of failures of an attack that are printed; its record has all.
const shown = 5

// runAttack makes the tries of an attack that its record lacks, some at a time.
func (l *lab) runAttack(ctx context.Context, a *attack, tries, parallel int, stdout io.Writer) (*record, error) {
	r := l.loadRecord(a)
	if a.skip != nil {
		r.Skipped = a.skip(l)
	}
	if r.Skipped != "" {
		fmt.Fprintf(stdout, "%-40s  skipped: %s\n", a.name, r.Skipped)
		return r, l.saveRecord(a, r)
	}
	start := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	var broken error
	// A try that misses its moment is made up for, but not without end.
	for range parallel {
		all.Go(func() {
			for {
				mu.Lock()
				k := r.Next
				if broken != nil || ctx.Err() != nil || r.Tries >= tries || k >= 4*tries+20 {
					mu.Unlock()
					return
				}
				r.Next++
				mu.Unlock()
				t, weight, err := l.runOneTry(ctx, a, k, false)
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				r.Tries += weight
				r.Base, r.Peak = max(r.Base, t.peakIntact), max(r.Peak, t.peakDamaged)
				if err != nil {
					r.Failures = append(r.Failures, failure{k, err.Error()})
				}
				if err != nil && len(r.Failures) <= shown {
					fmt.Fprintf(stdout, "%s\n    go run ./cmd/farfield-lab attacks -only '^%s$' -seed %d -try %d\n    %v\n", a.name, regexp.QuoteMeta(a.name), l.seed, k, err)
				}
				if err := l.saveRecord(a, r); err != nil {
					broken = err
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if err := errors.Join(broken, ctx.Err()); err != nil {
		return nil, err
	}
	if r.Tries < tries && len(r.Failures) == 0 {
		r.Failures = append(r.Failures, failure{r.Next, fmt.Sprintf("%d of %d tries met their moment", r.Tries, r.Next)})
		fmt.Fprintf(stdout, "%s\n    %s\n", a.name, r.Failures[0].What)
		if err := l.saveRecord(a, r); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(stdout, "%-40s  %4d tries, %d failures, %.0f s\n", a.name, r.Tries, len(r.Failures), time.Since(start).Seconds())
	return r, nil
}

// runOneTry makes try k of an attack in a folder of its own.
func (l *lab) runOneTry(ctx context.Context, a *attack, k int, keep bool) (t *trial, weight int, err error) {
	t, err = l.newTrial(ctx, l.place(a, k), rand.New(newSource(l.seed, a.name, k)))
	if err != nil {
		return t, 0, err
	}
	if !keep {
		defer os.RemoveAll(t.dir)
	}
	weight, err = a.try(t)
	return t, weight, err
}

// newSource returns the random numbers of a try.
func newSource(seed uint64, name string, k int) rand.Source {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s/%d", seed, name, k))
	return rand.NewPCG(binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:]))
}

var unfit = regexp.MustCompile(`[^a-z0-9]+`)

// fileName returns the name without what a file's name may not hold.
func (a *attack) fileName() string { return unfit.ReplaceAllString(strings.ToLower(a.name), "-") }

// place returns the folder of a try.
func (l *lab) place(a *attack, k int) string {
	return filepath.Join(l.work, "tries", fmt.Sprintf("%s-%d", a.fileName(), k))
}

func (l *lab) recordPath(a *attack) string {
	return filepath.Join(l.work, "records", a.fileName()+".json")
}

// loadRecord returns the record of an attack of this program and seed, or a new one.
func (l *lab) loadRecord(a *attack) *record {
	fresh := &record{Attack: a.name, Seed: l.seed, Program: l.digest, Commit: l.commit, Date: time.Now().UTC().Format(time.DateOnly)}
	text, err := os.ReadFile(l.recordPath(a))
	if err != nil {
		return fresh
	}
	var r record
	if json.Unmarshal(text, &r) != nil || r.Attack != a.name || r.Seed != l.seed || r.Program != l.digest {
		return fresh
	}
	return &r
}

// saveRecord writes the record of an attack.
func (l *lab) saveRecord(a *attack, r *record) error {
	r.Date = time.Now().UTC().Format(time.DateOnly)
	return atomicfile.WriteJSON(l.recordPath(a), r)
}

// allRecords returns the last record of every attack, whatever program it is of.
func (l *lab) allRecords() ([]*record, error) {
	var list []*record
	for _, a := range allAttacks() {
		text, err := os.ReadFile(l.recordPath(&a))
		if errors.Is(err, os.ErrNotExist) {
			list = append(list, &record{Attack: a.name, Skipped: "not run"})
			continue
		}
		if err != nil {
			return nil, err
		}
		var r record
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", l.recordPath(&a), err)
		}
		list = append(list, &r)
	}
	return list, nil
}
