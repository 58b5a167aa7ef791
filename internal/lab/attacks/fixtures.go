//go:build linux

package attacks

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/array"
	"github.com/farfield-ml/farfield/safetensors"
	"github.com/farfield-ml/farfield/task"
)

// Sizes of the smallest training that has everything that a run can have.
var little = []string{
	"--layers", "1", "--heads", "2", "--width", "16", "--hidden", "16", "--batch", "1", "--eval-samples", "2", "--final-samples", "2",
	"--sample-tokens", "0", "--save-every", "3", "--eval-every", "2", "--quiet",
}

// makeFixtures makes the files that are attacked, once for each build of the program.
func (l *lab) makeFixtures(ctx context.Context) error {
	done := filepath.Join(l.files, "done")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	old, err := filepath.Glob(filepath.Join(l.work, "fixtures-*"))
	if err != nil {
		return err
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	for _, make := range []func(context.Context) error{l.arrayFixtures, l.dataFixtures, l.runFixtures} {
		if err := make(ctx); err != nil {
			return fmt.Errorf("fixtures: %w", err)
		}
	}
	return os.WriteFile(done, nil, 0o644)
}

// writeFixture writes a fixture.
func (l *lab) writeFixture(name string, data []byte) error {
	path := filepath.Join(l.files, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// runFixture runs the program in the folder of fixtures; it must succeed.
func (l *lab) runFixture(ctx context.Context, args ...string) ([]byte, error) {
	t := &trial{lab: l, ctx: ctx, dir: filepath.Join(l.work, "tries")}
	if l.server == nil {
		t.lab = &lab{program: l.program, files: l.files, server: &server{}}
	}
	wait, err := t.startChild(child{args: args, dir: l.files, limit: slowLimit})
	if err != nil {
		return nil, err
	}
	o, err := wait()
	if err == nil && (o.status != 0 || o.hung) {
		err = fmt.Errorf("farfield %s: status %d: %s", strings.Join(args, " "), o.status, o.stderr)
	}
	return o.stdout, err
}

// sample returns an array of the same numbers for the same name.
func sample(name string, shape ...int) *array.Array {
	r := rand.New(newSource(0, name, 0))
	n := 1
	for _, s := range shape {
		n *= s
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	a, err := array.New(name, x, shape...)
	if err != nil {
		panic(err)
	}
	return a
}

// arrayFixtures are arrays and snapshots.
func (l *lab) arrayFixtures(context.Context) error {
	list := []*array.Array{sample("q", 2, 40, 8), sample("k", 2, 40, 8), sample("v", 2, 40, 8), sample("do", 2, 40, 8)}
	var stored, deflated, tensors bytes.Buffer
	if err := array.WriteNPZ(&stored, list); err != nil {
		return err
	}
	if err := safetensors.Write(&tensors, list, map[string]string{"a": "b"}); err != nil {
		return err
	}
	z := zip.NewWriter(&deflated)
	for _, a := range list {
		w, err := z.Create(a.Name + ".npy")
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := array.WriteNPY(&text, a); err != nil {
			return err
		}
		if err := l.writeFixture("folder/"+a.Name+".npy", text.Bytes()); err != nil {
			return err
		}
		if _, err := w.Write(text.Bytes()); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	for i := range 5 {
		state, err := os.ReadFile(fmt.Sprintf("attention/testdata/state%d", i))
		if err != nil {
			return err
		}
		if err := l.writeFixture(fmt.Sprintf("snapshot/state%d", i), state); err != nil {
			return err
		}
	}
	return errors.Join(
		l.writeFixture("arrays/a.npz", stored.Bytes()), l.writeFixture("arrays/d.npz", deflated.Bytes()), l.writeFixture("arrays/a.safetensors", tensors.Bytes()),
	)
}

// dataFixtures are the files that data sets come in.
func (l *lab) dataFixtures(context.Context) error {
	text := task.InventText(1, 6000).Text
	var own, records, tsv, csv, reviews, lines strings.Builder
	csv.WriteString("text,label\n")
	tsv.WriteString("text\tlabel\n")
	for i := range 40 {
		class, words := []string{"dull", "fine"}[i%2], strings.Fields(string(text[100*i:][:80]))
		s := strings.Map(func(r rune) rune {
			if strings.ContainsRune("\"\\\t", r) || r < ' ' || r > '~' {
				return 'x'
			}
			return r
		}, strings.Join(words, " "))
		fmt.Fprintf(&own, "{\"id\":%d,\"text\":%q,\"label\":%q}\n", i, s, class)
		fmt.Fprintf(&records, "{\"id\":%d,\"text\":%q}\n", i, s)
		fmt.Fprintf(&csv, "%q,%s\n", s, class)
		fmt.Fprintf(&tsv, "%s\t%s\n", s, class)
		fmt.Fprintf(&lines, "%s\n", s)
		fmt.Fprintf(&reviews, "%d\t%d_7\ttt%07d\t%s %s\n", (i+1)%2, i, i, class, s)
	}
	for name, s := range map[string]string{
		"text/text": string(text), "own/own.jsonl": own.String(), "own/own.csv": csv.String(), "own/own.tsv": tsv.String(), "text/records.jsonl": strings.Repeat(records.String(), 60), "own/lines": lines.String(),
		"imdb/imdb/imdb_train.tsv": reviews.String(), "imdb/imdb/imdb_test.tsv": reviews.String(),
	} {
		if err := l.writeFixture(name, []byte(s)); err != nil {
			return err
		}
	}
	if err := l.writeFixture("own/own.csv.gz", compressGzip([]byte(csv.String()))); err != nil {
		return err
	}
	for class, name := range []string{"high", "low"} {
		for i := range 6 {
			sound, picture := encodeWAV(800, 4+class*20), encodePicture(20+i)
			var p, j bytes.Buffer
			if err := errors.Join(png.Encode(&p, picture), jpeg.Encode(&j, picture, nil)); err != nil {
				return err
			}
			for _, part := range []string{"train", "valid", "test"} {
				if err := errors.Join(
					l.writeFixture(fmt.Sprintf("wav/%s/%s/%d.wav", part, name, i), sound),
					l.writeFixture(fmt.Sprintf("png/%s/%s/%d.png", part, name, i), p.Bytes()),
					l.writeFixture(fmt.Sprintf("jpeg/%s/%s/%d.jpg", part, name, i), j.Bytes()),
				); err != nil {
					return err
				}
			}
		}
	}
	pixels := make([]byte, 20*784)
	for i := range pixels {
		pixels[i] = byte(i)
	}
	labels := make([]byte, 20)
	for i := range labels {
		labels[i] = byte(i % 10)
	}
	for name, b := range map[string][]byte{
		"train-images-idx3-ubyte": encodeIDX([]int{20, 28, 28}, pixels), "train-labels-idx1-ubyte": encodeIDX([]int{20}, labels),
		"t10k-images-idx3-ubyte": encodeIDX([]int{2, 28, 28}, pixels[:2*784]), "t10k-labels-idx1-ubyte": encodeIDX([]int{2}, labels[:2]),
	} {
		if err := l.writeFixture("idx/mnist/"+name, b); err != nil {
			return err
		}
	}
	for b := range 6 {
		var batch []byte
		for i := range 10 {
			batch = append(append(batch, byte(i)), bytes.Repeat([]byte{byte(i + b)}, 3072)...)
		}
		name := fmt.Sprintf("data_batch_%d.bin", b+1)
		if b == 5 {
			name = "test_batch.bin"
		}
		if err := l.writeFixture("cifar/cifar10/cifar-10-batches-bin/"+name, batch); err != nil {
			return err
		}
	}
	r := rand.New(newSource(0, "bases", 0))
	for _, name := range []string{"GCF_000005845.2_ASM584v2_genomic.fna", "C.elegans.fa", "D.melanogaster.fa", "A.thaliana.fa"} {
		var b strings.Builder
		for c := range 4 {
			fmt.Fprintf(&b, ">chromosome%d of a species\n", c)
			for range 20 + c {
				for range 60 {
					b.WriteByte("ACGT"[r.IntN(4)])
				}
				b.WriteByte('\n')
			}
		}
		if err := l.writeFixture("fasta/genome/"+name, []byte(b.String())); err != nil {
			return err
		}
	}
	for name, b := range encodeRecording(3000) {
		if err := l.writeFixture("wfdb/ecg/"+name, b); err != nil {
			return err
		}
	}
	var table strings.Builder
	table.WriteString("date,up,day\n")
	for i := range 8640 + 2*2880 {
		fmt.Fprintf(&table, "2016-07-01 00:00:00,%d,%d\n", i%977, i%24)
	}
	series := map[string]string{}
	for _, part := range []string{"TRAIN", "TEST"} {
		var b strings.Builder
		b.WriteString("@problemName p\n@timeStamps false\n@classLabel true off on\n@data\n")
		for i := range 12 {
			fmt.Fprintf(&b, "%d,%d,?:7,8,9:%s\n", i, 10+i, []string{"off", "on"}[i%2])
		}
		series["ACSF1_"+part+".ts"] = b.String()
		if err := l.writeFixture("ts/acsf1/ACSF1_"+part+".ts", []byte(b.String())); err != nil {
			return err
		}
	}
	const pair = "1.0\ta\tb\tone two three\ttwo one\n0\tc\td\tred\tblue\n"
	pairs := map[string]string{}
	for _, part := range []string{"train", "eval", "test"} {
		pairs["lra_release/lra_release/tsv_data/new_aan_pairs."+part+".tsv"] = pair
		if err := l.writeFixture("aan/aan/new_aan_pairs."+part+".tsv", []byte(pair)); err != nil {
			return err
		}
	}
	zipped, err := zipOf(series)
	if err != nil {
		return err
	}
	packed, err := tarOf(pairs)
	if err != nil {
		return err
	}
	return errors.Join(l.writeFixture("ett/ett/ETTh1.csv", []byte(table.String())), l.writeFixture("zip/ACSF1.zip", zipped), l.writeFixture("tar/lra_release.gz", packed))
}

// served are the files of the loopback server, by the ends of their addresses.
func served() map[string][]byte {
	series := map[string]string{}
	for _, part := range []string{"TRAIN", "TEST"} {
		var b strings.Builder
		b.WriteString("@problemName p\n@timeStamps false\n@classLabel true off on\n@data\n")
		r := rand.New(newSource(0, part, 0))
		for i := range 4000 {
			fmt.Fprintf(&b, "%d,%d,%d:%s\n", r.IntN(1e9), r.IntN(1e9), r.IntN(1e9), []string{"off", "on"}[i%2])
		}
		series["ACSF1_"+part+".ts"] = b.String()
	}
	zipped, err := zipOf(series)
	if err != nil {
		panic(err)
	}
	return map[string][]byte{"2600-0.txt": task.InventText(2, 1<<20).Text, "ACSF1.zip": zipped}
}

// runFixtures are what the program writes itself.
func (l *lab) runFixtures(ctx context.Context) error {
	train := func(out string, more ...string) error {
		_, err := l.runFixture(ctx, append(append([]string{"train", "--out", out}, little...), more...)...)
		return err
	}
	err := errors.Join(
		train("run/run", "--data", "text/text", "--preset", "tiny", "--steps", "8", "--context", "16"),
		train("chars/run", "--task", "charlm", "--data", "text/text", "--preset", "tiny", "--steps", "3", "--context", "16"),
		train("labels/run", "--task", "file", "--data", "own/own.csv", "--steps", "3"),
	)
	if err != nil {
		return err
	}
	// The run continues from the checkpoint before its last.
	if err := l.writeFixture("run/run/ckpt/latest", []byte("step-00000006\n")); err != nil {
		return err
	}
	for _, name := range []string{"config.json", "model.safetensors", "vocab.json"} {
		b, err := os.ReadFile(filepath.Join(l.files, "run/run/ckpt/step-00000006", name))
		if err != nil {
			return err
		}
		if err := l.writeFixture("model/model/"+name, b); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"generate", "--model", "run/run", "--tokens", "5", "--save", "text/saved"},
		{"score", "--model", "run/run", "--state", "text/scored", "text/text"},
	} {
		if _, err := l.runFixture(ctx, args...); err != nil {
			return err
		}
	}
	return l.streamFixture(ctx)
}

// streamArgs are a stream with the checkpoint o.npy.checkpoint.
func streamArgs(out string) []string {
	return []string{"attend", "--mechanism", "fastmax", "--causal", "--synthetic", "60000,8,1", "--rows-every", "10", "--memory", "1MiB", "--checkpoint-every", "5ms", out}
}

// streamFixture is a stream that was killed half-way.
func (l *lab) streamFixture(ctx context.Context) error {
	dir := filepath.Join(l.files, "stream")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	t := &trial{lab: &lab{program: l.program, server: &server{}}, ctx: ctx, dir: filepath.Join(l.work, "tries")}
	for wait := 20 * time.Millisecond; wait < 5*time.Second; wait += 7 * time.Millisecond {
		begin, err := t.startChild(child{args: streamArgs("o.npy"), dir: dir, killAfter: wait})
		if err != nil {
			return err
		}
		if _, err := begin(); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(dir, "o.npy.checkpoint")); err == nil {
			left, err := filepath.Glob(filepath.Join(dir, ".farfield-*"))
			if err != nil {
				return err
			}
			for _, name := range left {
				if err := os.Remove(name); err != nil {
					return err
				}
			}
			return nil
		}
		if err := os.Remove(filepath.Join(dir, "o.npy")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return errors.New("no kill leaves a checkpoint of a stream")
}

func encodeIDX(shape []int, data []byte) []byte {
	b := []byte{0, 0, 8, byte(len(shape))}
	for _, n := range shape {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	return append(b, data...)
}

// encodeWAV returns a sound of n samples and a period.
func encodeWAV(n, period int) []byte {
	b := []byte("RIFF")
	b = binary.LittleEndian.AppendUint32(b, uint32(36+2*n))
	b = append(b, "WAVEfmt "...)
	b = binary.LittleEndian.AppendUint32(b, 16)
	for _, x := range []uint16{1, 1, 8000, 0, 16000, 0, 2, 16} {
		b = binary.LittleEndian.AppendUint16(b, x)
	}
	b = append(b, "data"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(2*n))
	for i := range n {
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(8000*math.Sin(2*math.Pi*float64(i)/float64(period)))))
	}
	return b
}

func encodePicture(side int) image.Image {
	m := image.NewNRGBA(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			m.Set(x, y, color.NRGBA{byte(x * 9), byte(y * 9), byte(x * y), 255})
		}
	}
	return m
}

// encodeRecording returns the files of record 100 in format 16, with checksums.
func encodeRecording(samples int) map[string][]byte {
	var data, marks []byte
	var sums [2]int16
	for i := range samples {
		lead := int16(i % 7)
		if i%50 == 0 {
			lead = 900
		}
		second := int16(-i % 90)
		sums[0] += lead
		sums[1] += second
		data = binary.LittleEndian.AppendUint16(data, uint16(lead))
		data = binary.LittleEndian.AppendUint16(data, uint16(second))
	}
	for at := 50; at < samples; at += 50 {
		marks = binary.LittleEndian.AppendUint16(marks, 1<<10|50)
	}
	marks = append(marks, 0, 0)
	head := fmt.Sprintf("100 2 360 %d\n100.dat 16 200 11 0 900 %d 0 MLII\n100.dat 16 100 11 0 0 %d 0 V5\n", samples, sums[0], sums[1])
	return map[string][]byte{"100.hea": []byte(head), "100.dat": data, "100.atr": marks}
}

func zipOf(files map[string]string) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range sortedKeys(files) {
		w, err := z.Create(name)
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}

func tarOf(files map[string]string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range sortedKeys(files) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return compressGzip(b.Bytes()), nil
}

func sortedKeys(files map[string]string) []string { return slices.Sorted(maps.Keys(files)) }
