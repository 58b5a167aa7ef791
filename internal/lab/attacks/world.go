//go:build linux

package attacks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// worldAttacks take from the program what it counts on.
func worldAttacks() []attack {
	root := func(*lab) string {
		if os.Getuid() != 0 {
			return "needs root"
		}
		return ""
	}
	var list []attack
	for _, kind := range []struct {
		name  string
		tries int
		skip  func(*lab) string
		only  func(*job) bool
		try   func(*job, *trial) (int, error)
	}{
		{"disk full", 20, root, func(j *job) bool { return j.appended == "" }, (*job).diskFull},
		{"read-only folder", 3, root, func(j *job) bool { return j.appended == "" }, (*job).readOnly},
		{"few descriptors", 20, nil, func(*job) bool { return true }, (*job).fewDescriptors},
		{"standard output full", 3, nil, func(*job) bool { return true }, (*job).outputFull},
		{"standard output closed", 20, nil, func(*job) bool { return true }, (*job).outputClosed},
		{"two at once", 20, nil, func(j *job) bool { return j.exclusive }, (*job).twoAtOnce},
	} {
		for _, j := range allJobs() {
			if kind.only(&j) {
				list = append(list, attack{kind.name + ": " + j.name, kind.tries, kind.skip, func(t *trial) (int, error) { return kind.try(&j, t) }})
			}
		}
	}
	return list
}

// beginJob prepares the box of a job.
func (t *trial) beginJob(j *job) (*reference, error) {
	r, err := t.makeReference(j)
	if err != nil {
		return nil, err
	}
	return r, t.lay()
}

// findTemporary names a file in out that only a killed process may leave; "" if there is
// none.
func (t *trial) findTemporary() string {
	found := ""
	_ = filepath.WalkDir(t.box("out"), func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err == nil && path != t.box("out") && (strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".lock") || strings.HasPrefix(name, ".")) {
			found = path
		}
		return nil
	})
	return found
}

// checkRefused holds what a process says that could not do its work.
func checkRefused(o *outcome, want ...string) error {
	words := string(o.stderr)
	lines := 0
	for line := range strings.Lines(words) {
		if strings.HasPrefix(line, "farfield: ") {
			lines++
		}
	}
	if lines != 1 {
		return fmt.Errorf("exits %d with %d lines of error: %s", o.status, lines, shortenText(words))
	}
	if !slices.ContainsFunc(want, func(s string) bool { return strings.Contains(words, s) }) {
		return fmt.Errorf("exits %d and does not say %q: %s", o.status, want, shortenText(words))
	}
	return nil
}

// diskFull runs a job where there is less room than it needs, then makes room.
func (j *job) diskFull(t *trial) (int, error) {
	r, err := t.beginJob(j)
	if err != nil {
		return 1, err
	}
	out := t.box("out")
	room := (4<<10 + int64(t.rand.Float64()*float64(r.size)*1.2)) &^ 4095
	if err := syscall.Mount("tmpfs", out, "tmpfs", 0, fmt.Sprintf("size=%d", room)); err != nil {
		return 0, err
	}
	defer syscall.Unmount(out, syscall.MNT_DETACH)
	args := j.next(t)
	o, err := t.runChild(child{args: args, dir: t.box(), limit: 2 * slowLimit}, nil)
	if err != nil {
		return 0, err
	}
	if err := o.checkSane(); err != nil {
		return 1, fmt.Errorf("with room for %d bytes: %w", room, err)
	}
	if o.status != 0 {
		if err := checkRefused(&o, "no space left on device"); err != nil {
			return 1, fmt.Errorf("with room for %d bytes: %w", room, err)
		}
		if o.status != 1 {
			return 1, fmt.Errorf("with room for %d bytes: exits %d, not 1", room, o.status)
		}
		if name := t.findTemporary(); name != "" {
			return 1, fmt.Errorf("with room for %d bytes: leaves %s", room, name)
		}
	}
	if err := syscall.Mount("tmpfs", out, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", 4*r.size+64<<20)); err != nil {
		return 0, err
	}
	return 1, t.goesOn(j, r, fmt.Sprintf("with room for %d bytes, then more", room), o.status == 0)
}

// goesOn finishes a job and compares. Work that has been done and does not continue is
// not begun again.
func (t *trial) goesOn(j *job, r *reference, when string, done bool) error {
	if now, err := t.readResults(); err == nil && diffTrees(r.tree, now) == "" {
		return nil
	}
	if !done || j.name == "generate --save" {
		if j.appended != "" && !j.resumable {
			if err := os.Remove(t.box("out", j.appended)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		if err := t.finishJob(j); err != nil {
			return fmt.Errorf("%s: %w", when, err)
		}
	}
	if err := t.compareFiles(r); err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	return nil
}

// readOnly runs a job as a user without permission to write its output.
func (j *job) readOnly(t *trial) (int, error) {
	if _, err := t.beginJob(j); err != nil {
		return 1, err
	}
	if err := os.Chown(t.box("home"), unprivilegedUser, unprivilegedUser); err != nil {
		return 0, err
	}
	args := j.next(t)
	o, err := t.runChild(child{args: args, dir: t.box(), user: unprivilegedUser}, nil)
	if err != nil {
		return 0, err
	}
	if err := o.checkSane(); err != nil {
		return 1, err
	}
	if o.status == 0 {
		return 1, errors.New("exits 0 in a folder that it may not write")
	}
	if o.status != 1 {
		return 1, fmt.Errorf("exits %d, not 1: %s", o.status, shortenText(string(o.stderr)))
	}
	if err := checkRefused(&o, "permission denied"); err != nil {
		return 1, err
	}
	if list, err := digestTree(t.box("out"), nil); err != nil || len(list) > 0 {
		return 1, fmt.Errorf("there is %v, %v", list, err)
	}
	return 1, nil
}

// The runtime of Go ends without the standard streams, two files of the processor's
// limits, and a queue of events with its signal; a file is open before the queue is.
const leastDescriptors = 9

// fewDescriptors runs a job that may open a few files, then without that limit.
func (j *job) fewDescriptors(t *trial) (int, error) {
	r, err := t.beginJob(j)
	if err != nil {
		return 1, err
	}
	files := leastDescriptors + t.rand.IntN(12)
	args := j.next(t)
	c, f, err := t.newProcess(j, args)
	if err != nil {
		return 0, err
	}
	c.files = files
	o, err := t.runChild(c, nil)
	if f != nil {
		f.Close()
	}
	if err != nil {
		return 0, err
	}
	when := fmt.Sprintf("with %d descriptors", files)
	if err := o.checkSane(); err != nil {
		return 1, fmt.Errorf("%s: %w", when, err)
	}
	if o.status != 0 {
		if err := checkRefused(&o, "too many open files"); err != nil {
			return 1, fmt.Errorf("%s: %w", when, err)
		}
		if name := t.findTemporary(); name != "" {
			return 1, fmt.Errorf("%s: leaves %s", when, name)
		}
	}
	return 1, t.goesOn(j, r, when+", then more", o.status == 0)
}

// outputFull has standard output on a full device.
func (j *job) outputFull(t *trial) (int, error) {
	if _, err := t.beginJob(j); err != nil {
		return 1, err
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	defer full.Close()
	args := j.next(t)
	o, err := t.runChild(child{args: args, dir: t.box(), stdout: full, limit: 2 * slowLimit}, nil)
	if err != nil {
		return 0, err
	}
	if err := o.checkSane(); err != nil {
		return 1, err
	}
	// Whether it has something to say is seen where it can.
	if err := errors.Join(os.RemoveAll(t.box("out")), os.Mkdir(t.box("out"), 0o755)); err != nil {
		return 0, err
	}
	alone, err := t.runChild(child{args: j.next(t), dir: t.box(), limit: 2 * slowLimit}, nil)
	if err != nil {
		return 0, err
	}
	switch speaks := len(alone.stdout) > 0; {
	case speaks && o.status == 0:
		return 1, fmt.Errorf("farfield %s: exits 0 where standard output is full", strings.Join(args, " "))
	case speaks:
		if err := checkRefused(&o, "no space left on device"); err != nil {
			return 1, err
		}
		if o.status != 1 {
			return 1, fmt.Errorf("exits %d, not 1", o.status)
		}
	case o.status != 0:
		return 1, fmt.Errorf("exits %d where it has nothing to say: %s", o.status, shortenText(string(o.stderr)))
	}
	return 1, nil
}

// outputClosed has a reader of standard output that leaves after some bytes, or none
// from the beginning.
func (j *job) outputClosed(t *trial) (int, error) {
	r, err := t.beginJob(j)
	if err != nil {
		return 1, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	most := t.rand.IntN(1 << t.rand.IntN(12))
	args := j.next(t)
	wait, err := t.startChild(child{args: args, dir: t.box(), stdout: write, limit: 2 * slowLimit})
	write.Close()
	if err != nil {
		read.Close()
		return 0, err
	}
	buf := make([]byte, 1)
	for range most {
		if n, err := read.Read(buf); n == 0 || err != nil {
			break
		}
	}
	read.Close()
	o, err := wait()
	if err != nil {
		return 0, err
	}
	when := fmt.Sprintf("with a reader of %d bytes", most)
	// A program of a pipe may end by the signal, as cat does.
	if o.signal != syscall.SIGPIPE {
		if err := o.checkSane(); err != nil {
			return 1, fmt.Errorf("%s: %w", when, err)
		}
		if o.status != 0 {
			if err := checkRefused(&o, "broken pipe"); err != nil {
				return 1, fmt.Errorf("%s: %w", when, err)
			}
		}
	}
	if j.appended != "" {
		return 1, nil // what was read is the reader's
	}
	return 1, t.goesOn(j, r, when+", then another", o.status == 0 && o.signal == 0)
}

// twoAtOnce starts a second process while the first is at work.
func (j *job) twoAtOnce(t *trial) (int, error) {
	r, err := t.beginJob(j)
	if err != nil {
		return 1, err
	}
	c, f, err := t.newProcess(j, j.next(t))
	if err != nil {
		return 0, err
	}
	if f != nil {
		defer f.Close()
	}
	first, err := t.startChild(c)
	if err != nil {
		return 0, err
	}
	type result struct {
		o   outcome
		err error
	}
	ended := make(chan result, 1)
	go func() { o, err := first(); ended <- result{o, err} }()
	select {
	case x := <-ended: // before the second
		return 0, x.err
	case <-time.After(time.Duration((0.2 + 0.4*t.rand.Float64()) * float64(r.one))):
	}
	d, g, err := t.newProcess(j, j.next(t))
	if err != nil {
		return 0, err
	}
	if g != nil {
		defer g.Close()
	}
	second, err := t.startChild(d)
	if err != nil {
		return 0, err
	}
	o, err := second()
	if err != nil {
		return 0, err
	}
	alive := true
	var x result
	select {
	case x = <-ended:
		alive = false
	default:
		x = <-ended
	}
	if x.err != nil {
		return 0, x.err
	}
	if x.o.status == 2 && o.status == 0 && strings.Contains(string(x.o.stderr), "in use") {
		// The second has overtaken the first.
		o, x.o, alive = x.o, o, true
	}
	if err := errors.Join(x.o.checkSane(), o.checkSane()); err != nil {
		return 1, err
	}
	if x.o.status != 0 {
		return 1, fmt.Errorf("the first exits %d: %s; the second exits %d: %s", x.o.status, shortenText(string(x.o.stderr)), o.status, shortenText(string(o.stderr)))
	}
	weight := 1
	switch {
	case o.status == 0 && j.waits:
	case o.status == 0:
		// If the files are one process's, one began after the other's end. If both are
		// never at work at the same time, no try counts, and the attack fails.
		weight = 0
	case o.status != 2:
		return 1, fmt.Errorf("the second exits %d, not 2: %s", o.status, shortenText(string(o.stderr)))
	default:
		// A command that begins a run is refused for the run that is there by then.
		if err := checkRefused(&o, "in use", "holds a run already"); err != nil {
			if !alive && !strings.Contains(string(o.stderr), "in use") {
				return 0, nil // too late: refused because of the first one's files
			}
			return 1, err
		}
	}
	return weight, t.goesOn(j, r, "with two at once", true)
}
