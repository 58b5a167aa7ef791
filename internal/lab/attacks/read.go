//go:build linux

package attacks

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A format is a kind of file that the program reads.
type format struct {
	name   string
	group  string                      // folder of fixtures; a try has a copy
	files  []string                    // of the group; a try damages one
	in     containerMutation           // where a file holds others; nil: it does not
	seal   seal                        // checksums of the file
	sealed func(in, file string) error // checksums in other files
	// Commands that read it; a try runs one. They are words with blanks between them,
	// where IN and OUT are the copy and a folder for results.
	commands []string
}

// trainCommand is a training that reads a data set.
func trainCommand(args string) string {
	return "train " + args + " " + strings.Join(little, " ") + " --steps 1 --out OUT/run"
}

const checkpointDir = "run/ckpt/step-00000006/"

func allFormats() []format {
	run := []string{
		"inspect IN/run", "inspect --json IN/run", "generate --model IN/run --tokens 3", "eval --model IN/run --data IN/run/metrics.jsonl --limit 2",
		"report --sample-tokens 3 --out OUT/r.html IN/run", "train --resume --out IN/run --quiet --sample-tokens 0",
	}
	model := []string{"inspect IN/model", "inspect --json IN/model"}
	npz := func(file string) []string {
		return []string{
			"attend --mechanism fastmax --causal IN/" + file + " OUT/o.npz", "attend --mechanism softmax --grad IN/" + file + " OUT/o.safetensors",
			"inspect IN/" + file, "maps --mechanism softmax --out OUT/m.png IN/" + file, "calibrate --set keep=8 IN/" + file + " OUT/c.npz",
		}
	}
	return []format{
		{name: "npy", group: "folder", files: []string{"q.npy", "k.npy", "v.npy"}, commands: []string{
			"attend --mechanism fastmax --causal --stream IN OUT/o.npy", "inspect IN/q.npy",
		}},
		{name: "npz, stored", group: "arrays", files: []string{"a.npz"}, in: insideZip, commands: npz("a.npz")},
		{name: "npz, deflated", group: "arrays", files: []string{"d.npz"}, in: insideZip, commands: npz("d.npz")},
		{name: "safetensors", group: "arrays", files: []string{"a.safetensors"}, commands: append(npz("a.safetensors"), "attend --mechanism linear --stream IN/a.safetensors OUT/o.npy")},
		{name: "snapshot", group: "snapshot", files: []string{"state0", "state1", "state2", "state3", "state4"}, seal: sealCRC32C, commands: []string{"inspect FILE"}},

		{name: "configuration of a run", group: "run", files: []string{"run/config.json"}, commands: run[:5]},
		{name: "metrics", group: "run", files: []string{"run/metrics.jsonl"}, commands: run},
		{name: "latest", group: "run", files: []string{"run/ckpt/latest"}, commands: run},
		{name: "manifest", group: "run", files: []string{checkpointDir + "checkpoint.json"}, sealed: sealManifest, commands: run},
		{name: "configuration of a checkpoint", group: "run", files: []string{checkpointDir + "config.json"}, sealed: sealManifest, commands: run},
		{name: "weights of a checkpoint", group: "run", files: []string{checkpointDir + "model.safetensors"}, sealed: sealManifest, commands: run},
		{name: "moments of the optimizer", group: "run", files: []string{checkpointDir + "optim.safetensors"}, sealed: sealManifest, commands: run},
		{name: "TensorBoard's file", group: "run", files: []string{"run/events.out.tfevents.0.farfield"}, commands: run},
		{name: "vocabulary", group: "chars", files: []string{"run/ckpt/step-00000003/vocab.json"}, sealed: sealManifest, commands: run[:3]},
		{name: "configuration of a model", group: "model", files: []string{"model/config.json"}, commands: model},
		{name: "weights of a model", group: "model", files: []string{"model/model.safetensors"}, commands: model},
		{name: "names of classes", group: "labels", files: []string{"run/classes.txt"}, commands: []string{"predict --model IN/run IN/run/classes.txt", "inspect IN/run"}},

		{name: "checkpoint of a stream", group: "stream", files: []string{"o.npy.checkpoint"}, seal: sealCRC32C, commands: []string{"inspect FILE", strings.Join(streamArgs("IN/o.npy"), " ")}},
		{name: "output of a killed stream", group: "stream", files: []string{"o.npy.partial"}, commands: []string{strings.Join(streamArgs("IN/o.npy"), " ")}},
		{name: "saved text", group: "text", files: []string{"saved"}, seal: sealSHA256, commands: []string{
			"inspect FILE", "inspect --model FIXTURES/run/run FILE", "generate --model FIXTURES/run/run --resume FILE --tokens 3 --save OUT/s",
		}},
		{name: "state of score", group: "text", files: []string{"scored"}, seal: sealSHA256, commands: []string{
			"inspect FILE", "score --model FIXTURES/run/run --state FILE IN/text",
		}},
		{name: "text", group: "text", files: []string{"text"}, commands: []string{
			"score --model FIXTURES/run/run --lines FILE", "eval --model FIXTURES/run/run --data FILE", "generate --model FIXTURES/run/run --prompt-file FILE --tokens 3",
			trainCommand("--preset tiny --context 16 --data FILE"), trainCommand("--task charlm --preset tiny --context 16 --data FILE"),
		}},
		{name: "records, JSONL", group: "own", files: []string{"own.jsonl"}, commands: []string{
			trainCommand("--task file --data FILE"), "score --model FIXTURES/run/run --jsonl FILE", "embed --model FIXTURES/run/run --jsonl FILE",
		}},
		{name: "records without labels", group: "text", files: []string{"records.jsonl"}, commands: []string{
			"predict --model FIXTURES/labels/run --jsonl FILE", "score --model FIXTURES/run/run --jsonl --out OUT/s.jsonl FILE", "embed --model FIXTURES/run/run --out OUT/e.jsonl FILE",
		}},
		{name: "records, CSV", group: "own", files: []string{"own.csv"}, commands: []string{trainCommand("--task file --data FILE")}},
		{name: "records, CSV in gzip", group: "own", files: []string{"own.csv.gz"}, in: insideGzip, commands: []string{trainCommand("--task file --data FILE")}},
		{name: "records, TSV", group: "own", files: []string{"own.tsv"}, commands: []string{trainCommand("--task file --data FILE")}},
		{name: "lines", group: "own", files: []string{"lines"}, commands: []string{"predict --model FIXTURES/labels/run FILE"}},
		{name: "WAV", group: "wav", files: []string{"train/high/*.wav", "test/low/*.wav", "valid/low/*.wav"}, commands: []string{trainCommand("--task wav --task-set data=IN --task-set length=500")}},
		{name: "PNG", group: "png", files: []string{"train/high/*.png", "test/low/*.png", "valid/low/*.png"}, commands: []string{trainCommand("--task picture --task-set data=IN --task-set side=8")}},
		{name: "JPEG", group: "jpeg", files: []string{"train/high/*.jpg", "test/low/*.jpg", "valid/low/*.jpg"}, commands: []string{trainCommand("--task picture --task-set data=IN --task-set side=8")}},
		{name: "IDX", group: "idx", files: []string{"mnist/*"}, commands: []string{trainCommand("--task mnist --folder IN")}},
		{name: "CIFAR-10", group: "cifar", files: []string{"cifar10/cifar-10-batches-bin/*"}, commands: []string{trainCommand("--task image --folder IN")}},
		{name: "FASTA", group: "fasta", files: []string{"genome/*"}, commands: []string{trainCommand("--task genome --task-set length=200 --folder IN"), "data list --folder IN"}},
		{name: "WFDB", group: "wfdb", files: []string{"ecg/*"}, commands: []string{trainCommand("--task ecg --task-set length=100 --folder IN")}},
		{name: "CSV of numbers", group: "ett", files: []string{"ett/ETTh1.csv"}, commands: []string{trainCommand("--task ett --folder IN")}},
		{name: "UEA series", group: "ts", files: []string{"acsf1/*"}, commands: []string{trainCommand("--task acsf1 --folder IN")}},
		{name: "reviews", group: "imdb", files: []string{"imdb/*"}, commands: []string{trainCommand("--task text --task-set length=50 --folder IN")}},
		{name: "pairs of papers", group: "aan", files: []string{"aan/*"}, commands: []string{trainCommand("--task retrieval --task-set length=50 --folder IN")}},
		{name: "zip archive", group: "zip", files: []string{"ACSF1.zip"}, in: insideZip, commands: []string{"data fetch acsf1 --from IN --folder OUT"}},
		{name: "tar archive", group: "tar", files: []string{"lra_release.gz"}, in: insideTar, commands: []string{"data fetch aan --from IN --folder OUT"}},
	}
}

// Memory that a command may have beyond its peak on the intact file: peakFactor times
// the file, and peakConstant.
const (
	peakFactor   = 10
	peakConstant = 64 << 20
)

// readAttacks have the program read damaged files.
func readAttacks() []attack {
	var list []attack
	for _, f := range allFormats() {
		list = append(list, attack{name: "damaged: " + f.name, tries: 300, try: f.tryFormat})
	}
	return list
}

// tryFormat has a command read a damaged file.
func (f *format) tryFormat(t *trial) (int, error) {
	in, command := t.box("in"), f.commands[t.rand.IntN(len(f.commands))]
	group := filepath.Join(t.files, f.group)
	lay := func() error {
		if err := os.RemoveAll(in); err != nil {
			return err
		}
		return os.CopyFS(in, os.DirFS(group))
	}
	if err := lay(); err != nil {
		return 0, err
	}
	var files []string
	for _, pattern := range f.files {
		list, err := filepath.Glob(filepath.Join(in, filepath.FromSlash(pattern)))
		if err != nil {
			return 0, err
		}
		files = append(files, list...)
	}
	if len(files) == 0 {
		return 0, fmt.Errorf("no fixture is %v", f.files)
	}
	slices.Sort(files)
	file := files[t.rand.IntN(len(files))]
	// All commands have to read the intact file, whichever this try takes.
	for _, c := range f.commands {
		if _, err := t.measureBase(f, c, file, lay); err != nil {
			return 1, err
		}
	}
	base, err := t.measureBase(f, command, file, lay)
	if err != nil {
		return 1, err
	}
	intact, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	escape := filepath.Join(os.TempDir(), fmt.Sprintf("farfield-escape-%x", sha256.Sum256([]byte(t.dir)))[:32])
	damaged := f.damageFile(t.rand, intact, escape)
	spoil := func() error {
		for _, clear := range []string{t.box("out"), t.box("cwd"), t.box("home")} {
			if err := os.RemoveAll(clear); err != nil {
				return err
			}
			if err := os.Mkdir(clear, 0o755); err != nil {
				return err
			}
		}
		if err := lay(); err != nil {
			return err
		}
		if err := os.WriteFile(file, damaged, 0o644); err != nil {
			return err
		}
		return nil
	}
	if err := spoil(); err != nil {
		return 0, err
	}
	resealed := f.sealed != nil && t.rand.IntN(2) == 0
	if resealed {
		before := spoil
		spoil = func() error {
			if err := before(); err != nil {
				return err
			}
			return f.sealed(in, file)
		}
		if err := f.sealed(in, file); err != nil {
			return 0, err
		}
	}
	before, err := digestTree(in, nil)
	if err != nil {
		return 0, err
	}
	args := t.words(command, file)
	o, err := t.runChild(child{args: args}, spoil)
	if err != nil {
		return 0, err
	}
	t.peakIntact, t.peakDamaged = base, o.peak
	said := fmt.Sprintf("farfield %s", strings.Join(args, " "))
	if err := o.checkSane(); err != nil {
		return 1, fmt.Errorf("%s: %w", said, err)
	}
	if most := base + peakFactor*int64(len(damaged)) + peakConstant; o.peak > most {
		return 1, fmt.Errorf("%s: takes %d MiB for a file of %d bytes, %d MiB for the intact one; at most %d MiB are possible", said, o.peak>>20, len(damaged), base>>20, most>>20)
	}
	return 1, t.checkStrayFiles(said, in, before, escape, strings.Contains(command, "--out IN") || strings.Contains(command, " IN/o.npy") || strings.Contains(command, "--state FILE"))
}

// checkStrayFiles returns an error if a command wrote outside its output.
func (t *trial) checkStrayFiles(said, in string, before map[string]string, escape string, may bool) error {
	if _, err := os.Lstat(escape); err == nil {
		_ = os.RemoveAll(escape)
		return fmt.Errorf("%s: writes %s, which the file names", said, escape)
	}
	if !may {
		now, err := digestTree(in, nil)
		if err != nil {
			return err
		}
		if d := diffTrees(before, now); d != "" {
			return fmt.Errorf("%s: changes its input: %s", said, d)
		}
	}
	for dir, want := range map[string][]string{t.dir: {"box"}, t.box(): {"cwd", "home", "in", "out"}, t.box("cwd"): nil} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !slices.Contains(want, e.Name()) {
				return fmt.Errorf("%s: writes %s", said, filepath.Join(dir, e.Name()))
			}
		}
	}
	return nil
}

// damageFile returns a damaged file: as it is, behind its checksum, or within.
func (f *format) damageFile(r *rand.Rand, b []byte, escape string) []byte {
	switch {
	case f.in != nil && r.IntN(2) == 0:
		return f.in(b, func(b []byte) []byte { return mutateBytes(r, b, escape) }, r.IntN)
	case f.seal != nil && r.IntN(2) == 0:
		return f.seal(mutateBytes(r, b, escape))
	}
	return mutateBytes(r, b, escape)
}

// words are a command's, for a file of the copy.
func (t *trial) words(command, file string) []string {
	list := strings.Fields(command)
	for i, s := range list {
		for _, p := range [][2]string{{"FIXTURES", t.files}, {"FILE", file}, {"OUT", t.box("out")}, {"IN", t.box("in")}} {
			if s == p[0] || strings.HasPrefix(s, p[0]+"/") || strings.HasSuffix(s, "="+p[0]) {
				s = strings.Replace(s, p[0], p[1], 1)
			}
		}
		list[i] = s
	}
	return list
}

// measureBase returns the peak of a command on the intact file, which it has to read, and lays
// the files anew. It is measured once.
func (t *trial) measureBase(f *format, command, file string, lay func() error) (int64, error) {
	key := f.name + "\x00" + command
	t.mu.Lock()
	peak, ok := t.bases[key]
	t.mu.Unlock()
	if ok {
		return peak, nil
	}
	args := t.words(command, file)
	o, err := t.runChild(child{args: args, limit: slowLimit}, nil)
	if err = errors.Join(err, os.RemoveAll(t.box("out")), os.Mkdir(t.box("out"), 0o755), lay()); err != nil {
		return 0, err
	}
	if o.status != 0 {
		return 0, fmt.Errorf("farfield %s: the intact file ends with status %d: %s", strings.Join(args, " "), o.status, shortenText(string(o.stderr)))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bases[key] = max(t.bases[key], o.peak)
	return t.bases[key], nil
}

// sealManifest gives the manifest beside a file, or itself, the checksums that fit.
func sealManifest(_, file string) error {
	path := filepath.Join(filepath.Dir(file), "checkpoint.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	// In the order of fields of train's manifest, on which its own checksum depends.
	var m struct {
		Format  string          `json:"format"`
		Version json.Number     `json:"version"`
		Step    json.Number     `json:"step"`
		Elapsed json.Number     `json:"elapsed_s"`
		Metrics json.Number     `json:"metrics_bytes"`
		Events  json.Number     `json:"events_bytes"`
		Best    json.RawMessage `json:"best,omitempty"`
		Data    string          `json:"data_sha256"`
		Files   map[string]struct {
			Bytes json.Number `json:"bytes"`
			Sum   string      `json:"sha256"`
		} `json:"files"`
		Sum string `json:"sha256"`
	}
	if json.Unmarshal(text, &m) != nil {
		return nil // beyond what a checksum can hide
	}
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(file), filepath.Base(name)))
		if err != nil {
			continue
		}
		sum, entry := sha256.Sum256(b), m.Files[name]
		entry.Bytes, entry.Sum = json.Number(fmt.Sprint(len(b))), hex.EncodeToString(sum[:])
		m.Files[name] = entry
	}
	m.Sum = ""
	bare, err := json.Marshal(m)
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(bare)
	m.Sum = hex.EncodeToString(sum[:])
	sealed, err := json.Marshal(m)
	if err != nil {
		return nil
	}
	return os.WriteFile(path, sealed, 0o644)
}
