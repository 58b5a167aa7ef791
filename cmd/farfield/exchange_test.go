package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/model"
)

// Verbs put another function into published folders and runs, or refuse it by name.
func TestExchange(t *testing.T) {
	t.Parallel()
	run, text, dir := trained(t), textFile(t), t.TempDir()
	for _, args := range [][]string{
		{"embed", text, "--model", tinyModel},
		{"maps", "--text", "the cat sat", "--model", tinyModel},
		{"embed", text, "--model", run},
		{"score", text, "--model", run},
		{"eval", "--model", run},
		{"generate", "--tokens", "8", "--temperature", "0", "--model", run},
		{"maps", "--text", "a text", "--model", run},
	} {
		of := args[len(args)-1]
		with := func(more ...string) []string { return slices.Concat(args, more) }
		own := works(t, args...)
		if of == tinyModel {
			if got := works(t, with("--mechanism", "softmax")...); got != own {
				t.Errorf("%s with softmax prints\n%s\nwith its own function\n%s", args[0], got, own)
			}
		}
		if got := works(t, with("--mechanism", "local", "--set", "span=2", "--layers", "0")...); got == own && args[0] != "generate" {
			t.Errorf("%s of %s: a window of two keys changes nothing", args[0], of)
		}
		refuses(t, "E and F", with("--mechanism", "linformer")...)
		refuses(t, "owns its projections", with("--mechanism", "crate")...)
		refuses(t, "77", with("--mechanism", "local", "--layers", "77")...)
		refuses(t, "--set: needs --mechanism", with("--set", "span=2")...)
	}
	vectors := filepath.Join(dir, "v.npy")
	works(t, "embed", "--model", tinyModel, "--out", vectors, text)
	works(t, "search", "--model", tinyModel, "--mechanism", "fastmax", vectors, "the cat")
	refuses(t, "--mechanism: needs --model", "search", "--mechanism", "fastmax", vectors, "--queries", vectors)
	records := filepath.Join(dir, "r.jsonl")
	works(t, "embed", "--model", tinyModel, "--out", records, text)
	refuses(t, "name another file", "embed", "--model", tinyModel, "--mechanism", "fastmax", "--out", records, text)
	refuses(t, "E and F", "serve", "--model", tinyModel, "--mechanism", "linformer", "--addr", "127.0.0.1:0")
	refuses(t, "E and F", "predict", "--model", tinyModel, "--mechanism", "linformer", text)
	refuses(t, "E and F", "forward", "--model", tinyModel, "--mechanism", "linformer", text, filepath.Join(dir, "out.npz"))
}

// exchange writes a folder that verbs read, and never over another one.
func TestExchangedFolders(t *testing.T) {
	t.Parallel()
	run, dir := trained(t, "--mechanism", "softmax"), t.TempDir()
	text := filepath.Join(dir, "text.txt")
	line := "the cat sat on a mat, and dogs ran in the rain! the sun was red, and the cat ran to the dogs. "
	if err := os.WriteFile(text, []byte(strings.Repeat(line, 60)), 0o600); err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(dir, "short.txt")
	if err := os.WriteFile(short, []byte("the cat sat on a mat\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"run": run, "folder": tinyModel} {
		out := filepath.Join(dir, name)
		args := []string{"exchange", "--model", from, "--data", text, "--cells", "8", "--order", "0", "--block", "4", "--window", "2"}
		var report struct {
			Verdict string
			Layers  []struct{ Distances []float64 }
			Choice  struct{ Cells, Order, Block, Window int }
		}
		with := append(args, "--out", out)
		if name == "folder" {
			with = append(with, "--json")
		}
		printed := works(t, with...)
		page := contents(t, filepath.Join(out, exchanged.PageFile))
		verdict, _, _ := strings.Cut(page, "\n")
		result := printed
		if name == "run" {
			if result = contents(t, filepath.Join(out, "result.json")); printed != page {
				t.Errorf("the printed page is\n%s\nthe written one\n%s", printed, page)
			}
		}
		if err := json.Unmarshal([]byte(result), &report); err != nil || report.Choice.Cells != 8 || len(report.Layers) == 0 || name == "folder" && report.Verdict != verdict {
			t.Errorf("%s: the result is %+v: %v", name, report, err)
		}
		if !strings.Contains(verdict, "near") || !strings.Contains(page, "## Layers") {
			t.Errorf("%s: the page is\n%s", name, page)
		}
		refuses(t, "exists already", append(args, "--out", out)...)
		refuses(t, "is an exchanged model", "exchange", "--model", out, "--data", text)
		if _, err := os.Stat(filepath.Join(out, "config.json")); err == nil {
			t.Errorf("%s: the folder has a config.json", name)
		}
		if got := works(t, "inspect", out); !strings.Contains(got, "multipole") || !strings.Contains(got, "calibrated distances") && !strings.Contains(got, "distance of held-out keys") || strings.Contains(got, "forward, export") {
			t.Errorf("%s: inspect prints %s", name, got)
		}
		if own, got := works(t, "embed", "--model", from, short), works(t, "embed", "--model", out, short); own == got {
			t.Errorf("%s: vectors are those of the trained model", name)
		}
		works(t, "maps", "--model", out, "--text", "the cat sat on a mat", "--layers", "0-0")
		refuses(t, "multipole", "export", "--model", out, "--out", filepath.Join(dir, "hf"))
	}
	long := filepath.Join(dir, "long")
	works(t, "exchange", "--model", tinyModel, "--positions", "interpolate", "--length", "40", "--data", text, "--cells", "8", "--out", long)
	if got := works(t, "inspect", long); !strings.Contains(got, "interpolated") {
		t.Errorf("inspect of interpolated positions prints %s", got)
	}
	refuses(t, "is of published models", "exchange", "--model", run, "--positions", "interpolate", "--data", text)
	refuses(t, "--length: 300", "exchange", "--model", tinyModel, "--positions", "interpolate", "--length", "300", "--data", text)
	out := filepath.Join(dir, "run")
	for _, args := range [][]string{{"score", short}, {"eval"}, {"generate", "--tokens", "4", "--prompt", "the cat"}} {
		works(t, append(args, "--model", out)...)
	}
	works(t, "tokenize", "--model", filepath.Join(dir, "folder"), short)
	for want, args := range map[string][]string{
		"--cells: 0": {"--cells", "0"},
		"--order: 3": {"--order", "3"},
		"--fit: 100 tokens, and order is 2; only cells of orders 0 and 1": {"--order", "2", "--fit", "100"},
		"--cosine: is of enc": {"--cosine", "0.9"},
		"--nats: 0":           {"--nats", "0"},
		"--state: ":           {"--state", "much"},
		"--layers: ":          {"--layers", "1,"},
		"state: 8 bytes":      {"--state", "8"},
		"no such file":        {"--also", filepath.Join(dir, "none")},
	} {
		refuses(t, want, append([]string{"exchange", "--model", run, "--data", text}, args...)...)
	}
}

// Updates are saved until the folder is written: if nothing is written they stay for a run with another wish.
func TestSavedUpdatesStayUntilTheFolderIsWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text, out := filepath.Join(dir, "text.txt"), filepath.Join(dir, "out")
	saved := out + ".updates"
	wrote(t, text, strings.Repeat("the cat sat on a mat, and dogs ran in the rain! the sun was red, and the cat ran to the dogs. ", 60))
	with := func(cosine string) []string {
		return []string{"exchange", "--model", tinyModel, "--data", text, "--cells", "4", "--order", "0", "--block", "4", "--window", "0", "--updates", "3", "--out", out, "--cosine", cosine}
	}
	// Only exact layers lose nothing.
	if status, _, errs := command(t, with("1")...); status == 0 || !strings.Contains(errs, "nothing is written") || !strings.Contains(errs, saved+": the updates stay") {
		t.Errorf("a wish that cannot be met: status %d, %s", status, errs)
	}
	if list, err := os.ReadDir(saved); err != nil || len(list) == 0 {
		t.Fatalf("saved updates are %v: %v", list, err)
	}
	notes := filepath.Join(saved, "notes.txt")
	wrote(t, notes, "a note")
	refuses(t, "--updates: "+saved, with("0.01")...)
	if err := os.Remove(notes); err != nil {
		t.Fatal(err)
	}
	works(t, with("0.01")...)
	if list, err := os.ReadDir(saved); err == nil {
		t.Errorf("after the folder is written, saved updates are %v", list)
	}
}

// Updates of weights in fewer bits are refused before a model is read.
func TestUpdatesNeedFullPrecision(t *testing.T) {
	t.Parallel()
	args := []string{"exchange", "--model", "none", "--data", "none.txt", "--updates", "30", "--precision"}
	for _, p := range []string{"bf16", "int8"} {
		refuses(t, "--updates: 30, and --precision is "+p, append(args, p)...)
	}
	refuses(t, "no such file", append(args, "f32")...)
}

// A file or folder of another kind where updates are to be saved is refused before a model is read.
func TestUpdatesLeaveOtherFiles(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	with := func(out, updates string) []string {
		return []string{"exchange", "--model", "none", "--data", "none.txt", "--updates", updates, "--out", out}
	}
	refuses(t, "no such file", with(out, "30")...)
	if err := os.Mkdir(out+".updates", 0o777); err != nil {
		t.Fatal(err)
	}
	refuses(t, "no such file", with(out, "30")...)
	notes := filepath.Join(out+".updates", "notes.txt")
	wrote(t, notes, "")
	for _, out := range []string{out, out + "/"} {
		refuses(t, "--updates: "+filepath.Clean(out)+".updates", with(out, "30")...)
		refuses(t, "notes.txt", with(out, "30")...)
	}
	refuses(t, "no such file", with(out, "0")...) // nothing is saved
}

// Verbs warn once of texts whose keys lie far from the cells of an exchanged model, also if a text before
// them lay near, and not of texts of the same kind.
func TestVerbsTellOfFarKeys(t *testing.T) {
	t.Parallel()
	run, dir := trained(t, "--mechanism", "softmax"), t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	near := strings.Repeat("aab", 30)
	far := strings.Repeat("the cat sat on a mat, and dogs ran in the rain! ", 2)
	out := filepath.Join(dir, "exchanged")
	works(t, "exchange", "--model", run, "--data", write("data.txt", strings.Repeat("aab", 600)), "--cells", "4", "--out", out)
	mixed, same := write("mixed.txt", near+"\n"+far+"\n"+far+"\n"), write("same.txt", near+"\n"+near+"\n")
	for name, args := range map[string][]string{
		"embed":    {"embed", "--model", out},
		"score":    {"score", "--model", out},
		"eval":     {"eval", "--model", out, "--all", "--data"},
		"generate": {"generate", "--model", out, "--tokens", "2", "--prompt-file"},
	} {
		if name == "eval" {
			_, _, errs := command(t, append(args, write("long.txt", strings.Repeat(far, 20)))...)
			if strings.Count(errs, "times as far") != 1 {
				t.Errorf("eval of another kind of text: %s", errs)
			}
			continue
		}
		path := mixed
		if name == "generate" {
			path = write("prompt.txt", far)
		}
		if _, _, errs := command(t, append(args, path)...); strings.Count(errs, "times as far") != 1 {
			t.Errorf("%s of another kind of text: %s", name, errs)
		}
		if _, _, errs := command(t, append(args, same)...); strings.Contains(errs, "times as far") {
			t.Errorf("%s of the same kind of text: %s", name, errs)
		}
	}
}

func TestExchangeOfFlags(t *testing.T) {
	t.Parallel()
	two, none := 2, 0
	for _, x := range []struct {
		flags flags.Exchange
		want  *model.Exchange
		err   string
	}{
		{flags.Exchange{}, nil, ""},
		{flags.Exchange{Mechanism: "fastmax"}, &model.Exchange{Mechanism: "fastmax"}, ""},
		{flags.Exchange{Mechanism: "local", Layers: "all"}, &model.Exchange{Mechanism: "local", AllLayers: true}, ""},
		{flags.Exchange{Mechanism: "local", Layers: "0,2-4,7"}, &model.Exchange{Mechanism: "local", Layers: []int{0, 2, 3, 4, 7}}, ""},
		{flags.Exchange{Mechanism: "fastmax", Settings: flags.Settings{Order: &two}}, &model.Exchange{Mechanism: "fastmax", Order: 2}, ""},
		{flags.Exchange{Mechanism: "fastmax", Settings: flags.Settings{Order: &none}}, nil, "--order: 0"},
		{flags.Exchange{Mechanism: "multipole", Settings: flags.Settings{Order: &none}}, &model.Exchange{Mechanism: "multipole"}, ""},
		{flags.Exchange{Mechanism: "multipole", Settings: flags.Settings{Order: &two}}, &model.Exchange{Mechanism: "multipole", Order: 2}, ""},
		{flags.Exchange{Mechanism: "crate"}, nil, "--mechanism: "},
		{flags.Exchange{Mechanism: "nothing"}, nil, "--mechanism: "},
		{flags.Exchange{Layers: "1"}, nil, "--layers: needs --mechanism"},
		{flags.Exchange{Settings: flags.Settings{Set: map[string]string{"span": "2"}}}, nil, "--set: needs --mechanism"},
		{flags.Exchange{Mechanism: "local", Layers: "1,"}, nil, `--layers: ""`},
		{flags.Exchange{Mechanism: "local", Layers: "-1"}, nil, `--layers: "-1"`},
		{flags.Exchange{Mechanism: "local", Layers: "5-2"}, nil, `--layers: "5-2"`},
		{flags.Exchange{Mechanism: "local", Layers: "0-18446744073709551615"}, nil, "not possible"},
	} {
		got, err := x.flags.Request()
		if !reflect.DeepEqual(got, x.want) || (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("%+v: %+v and error %v, want %+v and %q", x.flags, got, err, x.want, x.err)
		}
	}
}
