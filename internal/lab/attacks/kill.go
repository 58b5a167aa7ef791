//go:build linux

package attacks

import (
	"fmt"
	"strings"
	"time"
)

// killAttacks kill every kind of work that continues, and continue it.
func killAttacks() []attack {
	var list []attack
	for _, j := range allJobs() {
		if j.resumable {
			list = append(list, attack{name: "killed: " + j.name, tries: 100, try: j.killJob})
		}
	}
	return list
}

// killJob kills a job at some moments, lets it finish and compares.
func (j *job) killJob(t *trial) (int, error) {
	r, err := t.makeReference(j)
	if err != nil {
		return 1, err
	}
	if err := t.lay(); err != nil {
		return 0, err
	}
	kills := 0
	var moments []string
	for range 1 + t.rand.IntN(4) {
		args := j.next(t)
		if args == nil {
			break
		}
		c, f, err := t.newProcess(j, args)
		if err != nil {
			return kills, err
		}
		// Half of the moments are early, where files are made.
		c.killAfter = time.Duration(t.rand.Float64() * float64(r.took))
		if t.rand.IntN(2) == 0 {
			c.killAfter = time.Duration(t.rand.Float64() * float64(min(r.took, 300*time.Millisecond)))
		}
		c.killAfter = max(c.killAfter, time.Millisecond)
		wait, err := t.startChild(c)
		if err != nil {
			return kills, err
		}
		o, err := wait()
		if f != nil {
			f.Close()
		}
		switch {
		case err != nil:
			return kills, err
		case o.killed:
			kills++
			moments = append(moments, o.took.Round(time.Millisecond).String())
			continue
		}
		if err := o.checkSane(); err != nil {
			return kills, fmt.Errorf("after kills at %s: %w", strings.Join(moments, ", "), err)
		}
		if o.status != 0 {
			return max(kills, 1), fmt.Errorf("after kills at %s: farfield %s: exits %d: %s", strings.Join(moments, ", "), strings.Join(args, " "), o.status, shortenText(string(o.stderr)))
		}
		if j.appended != "" { // a text that is done is not scored again
			return kills, t.compareAfterKills(r, moments)
		}
	}
	if err := t.finishJob(j); err != nil {
		return max(kills, 1), fmt.Errorf("after kills at %s: %w", strings.Join(moments, ", "), err)
	}
	return kills, t.compareAfterKills(r, moments)
}

// compareAfterKills calls compareFiles and adds the moments of the kills to its error.
func (t *trial) compareAfterKills(r *reference, moments []string) error {
	if err := t.compareFiles(r); err != nil {
		return fmt.Errorf("after kills at %s: %w", strings.Join(moments, ", "), err)
	}
	return nil
}
