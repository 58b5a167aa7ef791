package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/cli/attend"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/stream"
)

// TestMain is the program itself where a test runs it as another process.
func TestMain(m *testing.M) {
	if os.Getenv("FARFIELD_AS_PROGRAM") != "" {
		main()
	}
	suite.KeepFilesInMemory()
	suite.CollectRarely()
	exchange.MostTimed = 1024
	status := m.Run()
	if common.root != "" {
		os.RemoveAll(common.root)
	}
	os.Exit(status)
}

// npy reads one .npy file.
func npy(t *testing.T, path string) *array.Array {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, err := array.ReadNPY(f)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// file32 is the bytes of x in a file.
func file32(x []float32) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, x)
	if err != nil {
		panic(err)
	}
	return b
}

// folderOf makes a folder of .npy files.
func folderOf(t *testing.T, list ...*array.Array) string {
	t.Helper()
	folder := t.TempDir()
	for _, a := range list {
		var b bytes.Buffer
		if err := array.WriteNPY(&b, a); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, a.Name+".npy"), b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestAttendStream streams one problem from every kind of input to every kind of
// output, in little memory and in more, and compares with the call in memory.
func TestAttendStream(t *testing.T) {
	const h, n, d = 2, 500, 5
	q, k, v := random(1, h*n*d), random(2, h*n*d), random(3, h*n*d)
	tau := []float32{2, 3}
	list := []*array.Array{made(t, "q", q, h, n, d), made(t, "k", k, h, n, d), made(t, "v", v, h, n, d), made(t, "tau", tau, h)}
	in := written(t, "in.safetensors", list...)
	folder, raw := folderOf(t, list...), filepath.Join(t.TempDir(), "in.raw")
	var tokens []float32
	for i := range n {
		for _, x := range [][]float32{q, k, v} {
			for j := range h {
				tokens = append(tokens, x[(j*n+i)*d:][:d]...)
			}
		}
	}
	if err := os.WriteFile(raw, file32(tokens), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, causal := range []bool{false, true} {
		flags, chunk := []string{"attend", "--mechanism", "taylorshift"}, 192
		if causal {
			flags, chunk = append(flags, "--causal"), 96
		}
		memory := filepath.Join(t.TempDir(), "o.safetensors")
		works(t, append(slices.Clone(flags), in, memory)...)
		want, err := read(t, memory)["o"].Float64()
		if err != nil {
			t.Fatal(err)
		}
		var first *array.Array
		flags = append(flags, "--stream")
		for _, from := range []string{in, folder} {
			for _, room := range []string{"320KiB", "2MiB"} {
				out := filepath.Join(t.TempDir(), "o.npy")
				works(t, append(slices.Clone(flags), "--memory", room, "--threads", "2", from, out)...)
				got := npy(t, out)
				near(t, from, got, []int{h, n, d}, want, check.LinearLimits[float32](21, chunk).Output(20, 2*check.MaxAbs(v)))
				if first == nil {
					first = got
				}
				a, _ := got.Float32()
				b, _ := first.Float32()
				if !slices.Equal(a, b) {
					t.Errorf("%s in %s: other bits than before", from, room)
				}
			}
		}
		out := filepath.Join(t.TempDir(), "o.safetensors")
		works(t, append(slices.Clone(flags), in, out)...)
		near(t, "safetensors", read(t, out)["o"], []int{h, n, d}, want, check.LinearLimits[float32](21, chunk).Output(20, 2*check.MaxAbs(v)))
	}

	// Raw numbers bring no parameters.
	out := filepath.Join(t.TempDir(), "o.raw")
	works(t, "attend", "--mechanism", "fastmax", "--causal", "--stream", "--raw", "5,2", raw, out)
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var to, errs bytes.Buffer
	e := &env.Env{Context: context.Background(), Stdin: bytes.NewReader(file32(tokens)), Stdout: &to, Stderr: &errs}
	if status := farfield().RunVerb([]string{"attend", "--mechanism", "fastmax", "--causal", "--stream", "--raw", "5,2", "-", "-"}, e); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	if !bytes.Equal(to.Bytes(), want) {
		t.Error("a pipe gives other bits than a file")
	}
	plain := filepath.Join(t.TempDir(), "o.npy")
	works(t, "attend", "--mechanism", "fastmax", "--causal", "--stream", written(t, "in.safetensors", list[:3]...), plain)
	rows, _ := npy(t, plain).Float32()
	for i := range n {
		for j := range h {
			row := file32(rows[(j*n+i)*d:][:d])
			if !bytes.Equal(row, want[(i*h+j)*d*4:][:d*4]) {
				t.Fatalf("row %d of head %d: raw and .npy differ", i, j)
			}
		}
	}
}

func TestAttendSynthetic(t *testing.T) {
	report := func(args ...string) (r attend.StreamReport) {
		t.Helper()
		text := works(t, append([]string{"attend", "--mechanism", "fastmax", "--json", "--synthetic", "3000,8,2"}, args...)...)
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	one := report("--seed", "7")
	if one.N != 3000 || one.Tokens != 6000 || one.Planned > one.Memory {
		t.Errorf("%+v", one)
	}
	if other := report("--seed", "7", "--memory", "300KiB", "--threads", "3"); other.Digest != one.Digest || other.Window >= one.Window {
		t.Errorf("in less memory the digest is %s, of windows of %d tokens; before %s, %d", other.Digest, other.Window, one.Digest, one.Window)
	}
	if other := report("--seed", "8"); other.Digest == one.Digest {
		t.Error("the seed changes nothing")
	}
	out := filepath.Join(t.TempDir(), "o.npy")
	if r := report("--seed", "7", out); r.Digest != one.Digest {
		t.Errorf("digest with a file is %s, without %s", r.Digest, one.Digest)
	}
	x, _ := npy(t, out).Float32()
	thin := filepath.Join(t.TempDir(), "o.npy")
	if r := report("--seed", "7", "--rows-every", "1000", thin); r.Digest != one.Digest || !slices.Equal(npy(t, thin).Shape, []int{2, 3, 8}) {
		t.Errorf("of every thousandth row the digest is %s, before %s", r.Digest, one.Digest)
	}
	held := report("--seed", "7", "--rows-every", "10", "--check", "4", filepath.Join(t.TempDir(), "o.npy"))
	if c := held.Check; c == nil || len(c.Rows) != 4 || !(c.Share > 0 && c.Share < 1) || held.Digest != one.Digest {
		t.Errorf("held against float64: %+v", c)
	}
	if m := check.MaxAbs(x); len(x) != 2*3000*8 || !(m > 0.5 && m < 3) {
		t.Errorf("%d outputs of up to %g", len(x), m)
	}
}

// Without a count of operations there is no speed.
func TestStreamWithoutCountedOperationsHasNoSpeed(t *testing.T) {
	args := []string{"attend", "--causal", "--synthetic", "1000,4,1", "--mechanism"}
	for _, x := range []struct {
		mechanism []string
		isCounted bool
	}{{[]string{"fastmax"}, true}, {[]string{"local", "--set", "span=8"}, false}} {
		all := append(slices.Clone(args), x.mechanism...)
		if out := works(t, all...); strings.Contains(out, " GFLOP/s") != x.isCounted {
			t.Errorf("%s: printed\n%s", x.mechanism[0], out)
		}
		if out := works(t, append(all, "--json")...); strings.Contains(out, `"flops"`) != x.isCounted {
			t.Errorf("%s: printed\n%s", x.mechanism[0], out)
		}
	}
}

// Rows of zeros, none and not finite: their differences have a quotient of 0 or none.
func TestCheckOfRowsWithoutSize(t *testing.T) {
	q, k := normal(t, "q", 1, 2, 9, 4), normal(t, "k", 2, 2, 9, 4)
	nan := random(3, 2*9*4)
	nan[5] = float32(math.NaN())
	none := func(name string) *array.Array { return made(t, name, []float32{}, 2, 0, 4) }
	for _, x := range []struct {
		in   []*array.Array
		want string
		code int
	}{
		{[]*array.Array{q, k, made(t, "v", make([]float32, 2*9*4), 2, 9, 4)}, `"max_o": 0,"error": 0,"relative": 0,`, 0},
		{[]*array.Array{none("q"), none("k"), none("v")}, `"rows": [],"max_o": 0,"error": 0,"relative": 0,`, 0},
		{[]*array.Array{q, k, made(t, "v", nan, 2, 9, 4)}, `"error": null,"relative": null,`, 1},
	} {
		status, out, errs := command(t, "attend", "--mechanism", "fastmax", "--causal", "--stream", "--allow-nonfinite", "--json", "--check", "400000000",
			written(t, "in.safetensors", x.in...), filepath.Join(t.TempDir(), "o.npy"))
		flat := strings.NewReplacer("\n", "", "  ", "").Replace(out)
		if status != x.code || !json.Valid([]byte(out)) || !strings.Contains(flat, x.want) {
			t.Errorf("status %d, %s, want %s; %s", status, out, x.want, errs)
		}
	}
}

func TestPlanOfNoTokensHasAReason(t *testing.T) {
	none := func(name string) *array.Array { return made(t, name, []float32{}, 0, 4) }
	out := works(t, "attend", "--mechanism", "fastmax", "--json", written(t, "in.npz", none("q"), none("k"), none("v")), filepath.Join(t.TempDir(), "o.npz"))
	if !strings.Contains(out, `"why": "there is nothing to compute"`) {
		t.Error(out)
	}
}

// TestKilledLongStream compares the digest of 2²⁶ tokens, killed once in each pass,
// with the digest of an uninterrupted run.
func TestKilledLongStream(t *testing.T) {
	if !suite.IsLong() {
		t.Skip("without -long")
	}
	args := []string{"attend", "--mechanism", "fastmax", "--json", "--synthetic", "67108864,32,1"}
	var whole, last attend.StreamReport
	if err := json.Unmarshal([]byte(works(t, args...)), &whole); err != nil {
		t.Fatal(err)
	}
	args = append(args, "--checkpoint-every", "1s", "--checkpoint", filepath.Join(t.TempDir(), "c"))
	half := time.Duration(whole.Seconds / 2 * float64(time.Second))
	for kills := 0; ; kills++ {
		c := exec.Command(os.Args[0], args...)
		c.Env = append(os.Environ(), "FARFIELD_AS_PROGRAM=1")
		var text, errs bytes.Buffer
		c.Stdout, c.Stderr = &text, &errs
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(half, func() {
			if kills < 2 {
				c.Process.Kill()
			}
		})
		err := c.Wait()
		timer.Stop()
		if err != nil {
			if c.ProcessState.Exited() {
				t.Fatalf("%v: %s", err, errs.String())
			}
			continue
		}
		if kills < 1 { // the uninterrupted run was slower, beside other tests
			half, kills = half/2, -1
			continue
		}
		if err := json.Unmarshal(text.Bytes(), &last); err != nil {
			t.Fatal(err)
		}
		t.Logf("killed %d times, %d of %d tokens were done before the last run", kills, last.Resumed, last.Tokens)
		break
	}
	if last.Digest != whole.Digest || last.Resumed == 0 {
		t.Errorf("digest is %s after %d tokens of runs before, without kills %s", last.Digest, last.Resumed, whole.Digest)
	}
}

// TestKilledStream kills the program at many moments and runs it again, until it
// is done.
func TestKilledStream(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts the program many times")
	}
	for _, form := range [][]string{nil, {"--causal"}} {
		dir := t.TempDir()
		out := filepath.Join(dir, "o.npy")
		args := append([]string{"attend", "--mechanism", "fastmax", "--synthetic", "30000,12,2", "--memory", "1MiB", "--checkpoint-every", "1ms"}, form...)
		works(t, append(slices.Clone(args), out)...)
		want, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		kills, found := 0, 0
		// Where no kill came after a checkpoint, kills at other moments are tried.
		for first := 60 * time.Millisecond; found == 0; first /= 2 {
			if first < time.Millisecond {
				t.Fatalf("%v: %d kills, none behind a checkpoint", form, kills)
			}
			out = filepath.Join(t.TempDir(), "o.npy")
			for wait := first; ; wait += wait / 4 {
				_, noCheckpoint := os.Stat(out + stream.CheckpointSuffix)
				c := exec.Command(os.Args[0], append(slices.Clone(args), out)...)
				c.Env = append(os.Environ(), "FARFIELD_AS_PROGRAM=1")
				var errs bytes.Buffer
				c.Stderr = &errs
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				timer := time.AfterFunc(wait, func() { c.Process.Kill() })
				err := c.Wait()
				timer.Stop()
				if err == nil {
					if strings.Contains(errs.String(), "of them before") != (noCheckpoint == nil) {
						t.Errorf("%v: the run after %d kills finds the checkpoint: %v; it says %s", form, kills, noCheckpoint, errs.String())
					}
					break
				}
				if c.ProcessState.Exited() {
					t.Fatalf("%v: %s", err, errs.String())
				}
				kills++
				if _, err := os.Stat(out + stream.CheckpointSuffix); err == nil {
					found++
				} else if _, err := os.Stat(out); err == nil {
					break // all was done but the report
				}
			}
			got, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%v: after %d kills the output is another", form, kills)
			}
			if _, err := os.Stat(out + stream.CheckpointSuffix); err == nil {
				t.Error("a checkpoint is left behind")
			}
		}
		t.Logf("%v: killed %d times, %d times behind a checkpoint", form, kills, found)
	}
}

func TestStreamRefusals(t *testing.T) {
	dir := t.TempDir()
	q, k := normal(t, "q", 1, 2, 9, 4), normal(t, "k", 2, 2, 9, 4)
	v := normal(t, "v", 3, 2, 9, 4)
	in, out := written(t, "in.safetensors", q, k, v), filepath.Join(dir, "o.npy")
	bad := random(4, 2*9*4)
	bad[71] = float32(math.Inf(1))
	for _, x := range []struct {
		want string
		args []string
	}{
		{"--layer: needs --model", []string{"--layer", "1", "--stream", in, out}},
		{`begins with "`, []string{"--stream", "--checkpoint", written(t, "other.safetensors", q, k, v), "--fresh", in, out}},
		{"is what is read, and would be lost", []string{"--stream", "--checkpoint", in, "--fresh", in, out}},
		{"--memory: needs --stream", []string{"--memory", "1MiB", in, out}},
		{"--rows-every: is -1, needs 0 or more", []string{"--rows-every=-1", "--stream", in, out}},
		{"--check: 3 rows; it needs a file OUT", []string{"--check", "3", "--stream", in}},
		{"--check: 9 rows; --memory 2000 has room for 6", []string{"--check", "10", "--memory", "2000", "--stream", in, out}},
		{"--check: needs --stream", []string{"--check", "3", in, out}},
		{"--rows-every: needs OUT", []string{"--rows-every", "2", "--stream", in}},
		{"--fresh: needs a file OUT or --checkpoint", []string{"--fresh", "--stream", in}},
		{"--checkpoint-every: needs a file OUT or --checkpoint", []string{"--checkpoint-every", "1s", "--stream", in, "-"}},
		{"--grad: not with --stream", []string{"--grad", "--stream", in, out}},
		{"--form: not with --stream", []string{"--form", "step", "--stream", in, out}},
		{`--memory: "1MB" is not a number of bytes`, []string{"--memory", "1MB", "--stream", in, out}},
		{"memory: 1000 bytes; the state and 3 windows of one token take ", []string{"--memory", "1000", "--stream", in, out}},
		{`expected "<in> [<out>]"`, []string{"--stream"}},
		{"--synthetic: takes the place of <in>", []string{"--synthetic", "1,2,3", in, out}},
		{`--synthetic: "1,2" has 2 numbers, needs 3 to 3`, []string{"--synthetic", "1,2"}},
		{`--synthetic: "x" is not a whole number`, []string{"--synthetic", "1,x,3"}},
		{"1 heads of width 1000000000, at most 16777216 of each are possible", []string{"--synthetic", "1,1000000000,1"}},
		{"--raw: missing; standard input needs", []string{"--stream", "-", out}},
		{"causal: unmasked attention reads keys and then queries, and a pipe is read once", []string{"--stream", "--raw", "4,1", "-", "-"}},
		{"needs .safetensors, a folder of .npy, or --raw", []string{"--stream", written(t, "in.npz", q, k, v), out}},
		{`the suffix is ".npz", needs .npy, .safetensors or .raw`, []string{"--stream", in, filepath.Join(dir, "o.npz")}},
		{"k: D is 4, q has 5", []string{"--stream", written(t, "in.safetensors", normal(t, "q", 1, 2, 9, 5), k, v), out}},
		{"v: M is 8, k has 9", []string{"--stream", written(t, "in.safetensors", q, k, normal(t, "v", 1, 2, 8, 5)), out}},
		{"k: 2 heads do not divide the 3 heads of q", []string{"--stream", written(t, "in.safetensors", normal(t, "q", 1, 3, 9, 4), k, v), out}},
		{"v: missing; the input has k, q", []string{"--stream", written(t, "in.safetensors", q, k), out}},
		{"key_lengths: not defined for a stream; keymask is", []string{"--stream", written(t, "in.safetensors", q, k, v, made(t, "key_lengths", []int64{3})), out}},
		{"keymask: shape is [8], needs (B,M) or (M)", []string{"--stream", written(t, "in.safetensors", q, k, v, made(t, "keymask", make([]bool, 8), 8)), out}},
		{"log_g: decay needs a causal call", []string{"--stream", written(t, "in.safetensors", q, k, v, made(t, "log_g", make([]float32, 9), 9)), out}},
		{"v: element [0,1,8,3] is +Inf", []string{"--stream", written(t, "in.safetensors", q, k, made(t, "v", bad, 2, 9, 4)), out}},
	} {
		refuses(t, x.want, append([]string{"attend", "--mechanism", "fastmax"}, x.args...)...)
	}
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
	status, _, errs := command(t, "attend", "--mechanism", "fastmax", "--stream", in, out)
	if status != 0 || !strings.Contains(errs, "18 tokens in") || !strings.Contains(errs, "planned of 256 MiB") {
		t.Errorf("status %d, %q", status, errs)
	}
}

// TestInterruptedStream says how to go on.
func TestInterruptedStream(t *testing.T) {
	out := filepath.Join(t.TempDir(), "o.npy")
	args := []string{"attend", "--mechanism", "fastmax", "--synthetic", "2000,4,1", out}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var to, errs bytes.Buffer
	e := &env.Env{Context: ctx, Stdin: strings.NewReader(""), Stdout: &to, Stderr: &errs}
	if status := farfield().RunVerb(args, e); status != env.StatusInterrupted || errs.String() != "farfield: stopped after token 0; the same command continues\n" {
		t.Errorf("status %d, %q", status, errs.String())
	}
	works(t, args...)
}
