//go:build linux

package attacks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A job is work that writes. Its processes run in the box, where in is a link to the
// fixtures and out is the folder for results.
type job struct {
	name string
	// next returns the command that begins the work or continues it, from what the box
	// holds; nil: all is done.
	next func(t *trial) []string
	// appended is the file in out to which standard output is appended, as >>file does
	// in a shell; "" where standard output is no result.
	appended string
	// resumable work is continued after a kill; other work is done again.
	resumable bool
	// exclusive work has one owner: a second process is refused.
	exclusive bool
	// waits: the second process waits for the first and finds all done.
	waits bool
}

// splitWords returns a next that always runs the same command.
func splitWords(command string) func(*trial) []string {
	return func(*trial) []string { return strings.Fields(command) }
}

// resumed returns a next that begins with a command, and resumes where its run has a
// configuration.
func resumed(command, config, resume string) func(*trial) []string {
	return func(t *trial) []string {
		if list, _ := filepath.Glob(t.box("out", config)); len(list) > 0 {
			return strings.Fields(resume)
		}
		return strings.Fields(command)
	}
}

func allJobs() []job {
	const run = "--layers 1 --heads 2 --width 16 --hidden 16 --batch 1 --eval-samples 2 --final-samples 20 --sample-tokens 3 --quiet"
	return []job{
		{name: "train", resumable: true, exclusive: true, next: resumed(
			"train --data in/text/text --out out/run --preset tiny --context 32 --steps 400 --save-every 40 --eval-every 100 "+run, "run/config.json",
			"train --resume --out out/run --sample-tokens 3 --quiet")},
		{name: "train --seeds", resumable: true, exclusive: true, next: resumed(
			"train --seeds 3 --data in/text/text --out out/runs --preset tiny --context 32 --steps 120 --save-every 30 --eval-every 60 "+run, "runs/seed-1/config.json",
			"train --resume --out out/runs --sample-tokens 3 --quiet")},
		{name: "attend --stream", resumable: true, exclusive: true, next: splitWords(
			"attend --mechanism fastmax --causal --synthetic 60000,16,2 --rows-every 20 --memory 2MiB --checkpoint-every 20ms out/o.npy")},
		{name: "generate --save", resumable: true, exclusive: true, next: saveInParts},
		{name: "score --state", resumable: true, exclusive: true, next: splitWords(
			"score --model in/run/run --state out/state --lines --json --out out/lines.jsonl in/text/text")},
		{name: "score --jsonl", resumable: true, exclusive: true, next: splitWords("score --model in/run/run --jsonl --out out/scored.jsonl in/text/records.jsonl")},
		{name: "predict", resumable: true, exclusive: true, next: splitWords("predict --model in/labels/run --jsonl --out out/predicted.jsonl in/text/records.jsonl")},
		{name: "embed", resumable: true, exclusive: true, next: splitWords("embed --model in/run/run --out out/vectors.jsonl in/text/records.jsonl")},
		{name: "data generate", resumable: true, exclusive: true, next: splitWords(
			"data generate listops --folder out --train 1500 --valid 100 --test 100")},
		{name: "data fetch", resumable: true, exclusive: true, waits: true, next: splitWords("data fetch warandpeace acsf1 --folder out")},
		{name: "attend", next: splitWords("attend --mechanism fastmax --causal in/arrays/a.npz out/o.npz")},
		{name: "calibrate", next: splitWords("calibrate --set keep=8 in/arrays/a.npz out/c.npz")},
		{name: "calibrate --to", next: splitWords("calibrate --model in/run/run --data in/text/text --tokens 64 --set keep=8 --to out/model")},
		{name: "maps", next: splitWords("maps --mechanism softmax --out out/m.png --npz out/m.npz in/arrays/a.npz")},
		{name: "report", next: splitWords("report --sample-tokens 0 --out out/r.html in/run/run")},
		{name: "plan --plot", next: splitWords("plan --plot out/p.svg")},
		{name: "predict, printed", appended: "labels", next: splitWords("predict --model in/labels/run in/own/lines")},
		{name: "inspect", appended: "text", next: splitWords("inspect in/run/run")},
	}
}

// saveInParts generates a text in parts and saves each; the file holds the number of drawn
// tokens.
func saveInParts(t *trial) []string {
	const all, part = 4500, 1500
	args := []string{"generate", "--model", "in/run/run", "--save", "out/saved"}
	drawn := 0
	if _, err := os.Stat(t.box("out", "saved")); err == nil {
		args = append(args, "--resume", "out/saved")
		wait, err := t.startChild(child{args: []string{"inspect", "--json", "out/saved"}, dir: t.box(), limit: slowLimit})
		if err != nil {
			return args
		}
		var f struct {
			Drawn int `json:"tokens_drawn"`
		}
		if o, err := wait(); err != nil || json.Unmarshal(o.stdout, &f) != nil {
			return args
		}
		drawn = f.Drawn
	}
	if _, err := os.Stat(t.box("out", "saved.lock")); drawn >= all && err != nil {
		return nil // the lock of a killed process is removed by the next
	}
	return append(args, "--tokens", fmt.Sprint(max(0, min(part, all-drawn))))
}

// A reference is what a job comes to where nothing goes wrong.
type reference struct {
	tree map[string]string
	took time.Duration // of all its processes
	one  time.Duration // of the first of them
	size int64         // bytes of its results
}

// Parts of results that depend on the clock or the machine.
var (
	timed  = regexp.MustCompile(`"(elapsed_s|tokens_per_s|seconds|metrics_bytes|events_bytes)": ?[-+0-9.e]+`)
	dated  = regexp.MustCompile(`"(started|sha256|crc32c)": ?"[^"]*"`)
	opaque = regexp.MustCompile(`(^|/)(events\.out\.tfevents\..*|report\.html|report\.md|r\.html|.*\.svg)$`)
)

// readResults returns what lies in out, without what depends on the clock and the box.
func (t *trial) readResults() (map[string]string, error) {
	return digestTree(t.box("out"), func(name string, data []byte) []byte {
		return bytes.ReplaceAll(removeClockParts(name, data), []byte(t.box()), []byte("BOX"))
	})
}

// removeClockParts returns a result without what depends on the clock.
func removeClockParts(name string, data []byte) []byte {
	switch {
	case opaque.MatchString(name):
		return nil
	case filepath.Base(name) == "checkpoint.json":
		return dated.ReplaceAll(timed.ReplaceAll(data, nil), nil)
	case strings.HasSuffix(name, "metrics.jsonl"):
		return dated.ReplaceAll(timed.ReplaceAll(data, nil), nil)
	case strings.Contains(name, "pieces/"):
		var m map[string]any
		if json.Unmarshal(data, &m) == nil {
			for _, key := range []string{"started", "seconds", "build", "machine"} {
				delete(m, key)
			}
			if text, err := json.Marshal(m); err == nil {
				return text
			}
		}
	}
	return data
}

// lay links the fixtures into the box.
func (t *trial) lay() error { return os.Symlink(t.files, t.box("in")) }

// newProcess returns the child of a job's command, whose standard output is out where it
// is a result. The caller closes the file.
func (t *trial) newProcess(j *job, args []string) (child, *os.File, error) {
	c := child{args: args, dir: t.box(), limit: 2 * slowLimit}
	if j.appended == "" {
		return c, nil, nil
	}
	f, err := os.OpenFile(t.box("out", j.appended), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	c.stdout = f
	return c, f, err
}

// finishJob runs a job's commands until all is done. Only saved texts take several.
func (t *trial) finishJob(j *job) error {
	_, err := t.finishing(j)
	return err
}

// finishing is finish, and returns the time of the first process.
func (t *trial) finishing(j *job) (one time.Duration, err error) {
	for range 10 {
		args := j.next(t)
		if args == nil {
			return one, nil
		}
		c, f, err := t.newProcess(j, args)
		if err != nil {
			return one, err
		}
		o, err := t.runChild(c, nil)
		if f != nil {
			f.Close()
		}
		if err != nil {
			return one, err
		}
		if one == 0 {
			one = o.took
		}
		if err := o.checkSane(); err != nil {
			return one, fmt.Errorf("farfield %s: %w", strings.Join(args, " "), err)
		}
		if o.status != 0 {
			return one, fmt.Errorf("farfield %s: exits %d: %s", strings.Join(args, " "), o.status, shortenText(string(o.stderr)))
		}
		if j.name != "generate --save" {
			return one, nil
		}
	}
	return one, fmt.Errorf("%s does not end", j.name)
}

// makeReference returns what a job comes to; it is made once.
func (t *trial) makeReference(j *job) (*reference, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.references[j.name]; r != nil {
		return r, nil
	}
	dir := filepath.Join(t.work, "tries", "reference-"+(&attack{name: j.name}).fileName())
	defer os.RemoveAll(dir)
	u, err := t.newTrial(t.ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	if err := u.lay(); err != nil {
		return nil, err
	}
	start := time.Now()
	one, err := u.finishing(j)
	if err != nil {
		return nil, fmt.Errorf("uninterrupted: %w", err)
	}
	r := &reference{took: time.Since(start), one: one}
	if r.tree, err = u.readResults(); err != nil {
		return nil, err
	}
	for name := range r.tree {
		if info, err := os.Stat(u.box("out", name)); err == nil && info.Mode().IsRegular() {
			r.size += info.Size()
		}
	}
	t.references[j.name] = r
	return r, nil
}

// compareFiles returns an error unless a job's files equal the files of an undisturbed job.
func (t *trial) compareFiles(r *reference) error {
	now, err := t.readResults()
	if err != nil {
		return err
	}
	if d := diffTrees(r.tree, now); d != "" {
		return fmt.Errorf("in the end %s", d)
	}
	return nil
}
