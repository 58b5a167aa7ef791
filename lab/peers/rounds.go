package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
)

// record is what a contestant did in a round: the line of `farfield bench
// --json`, and where it belongs.
type record struct {
	Cell       string `json:"cell"`
	Contestant string `json:"contestant"`
	Round      int    `json:"round"`
	bench.Line
}

// run is what was measured: a line about the machine, then records.
type run struct {
	Machine  string   `json:"machine"`
	Date     string   `json:"date"`
	Commit   string   `json:"commit,omitempty"` // of the checkout; "" outside one
	Settings []string `json:"settings"`         // of the peers
	records  []record
}

// add adds records to r, and to a file that begins with r itself.
func (r *run) add(records []record, file *json.Encoder) error {
	r.records = append(r.records, records...)
	for _, l := range records {
		if err := file.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// readLines reads a file that a run was encoded to and its records were added to.
func readLines(from io.Reader) (*run, error) {
	d := json.NewDecoder(bufio.NewReader(from))
	r := new(run)
	if err := d.Decode(r); err != nil {
		return nil, err
	}
	for {
		var l record
		if err := d.Decode(&l); err == io.EOF {
			return r, nil
		} else if err != nil {
			return nil, err
		}
		r.records = append(r.records, l)
	}
}

// measurer fills in the figures of a line.
type measurer func(l bench.Line, budget time.Duration) (bench.Line, error)

// pace is how long to measure.
type pace struct {
	rounds int           // of turns, fewer where they take long
	turn   time.Duration // of a contestant in a round, one call at least
	cell   time.Duration // after which a cell has no more rounds than it must
}

const (
	leastRounds = 3
	// settle is the time in which threads that wait for work fall asleep.
	settle = 3 * time.Millisecond
)

// takeTurns measures the contestants of a cell one after the other, round by round. It
// reports a contestant that fails to tell and leaves it out from then on. A peer's line
// takes its peak from our line before it.
func takeTurns(ctx context.Context, c cell, by map[string]measurer, p pace, tell func(string)) ([]record, error) {
	var records []record
	out := map[string]bool{}
	peak, machine := 0.0, "" // of one core
	for r, start := 0, time.Now(); r < p.rounds && (r < leastRounds || time.Since(start) < p.cell); r++ {
		for _, x := range c.contestants {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			measure := by[x.line.Impl]
			if measure == nil || out[x.name] {
				continue
			}
			time.Sleep(settle)
			l, err := measure(x.line, p.turn)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				out[x.name] = true
				tell(fmt.Sprintf("%s: without %s: %v", c.name(), x.name, err))
				continue
			}
			cores := float64(min(l.Threads, runtime.NumCPU()))
			if x.line.Impl == farfield {
				peak, machine = l.Peak/cores, l.Machine
			} else if l.Machine = machine; peak > 0 {
				l.Peak = peak * cores
				l.Share = l.GFLOPS / l.Peak
			}
			records = append(records, record{c.name(), x.name, r, l})
		}
	}
	return records, nil
}
