package main

import (
	"os"
	"path/filepath"
	"testing"
)

// No verb writes over what it reads, whatever the file is called, nor begins work
// whose result has no place.
func TestOutputsThatCannotBe(t *testing.T) {
	q, k, v := normal(t, "q", 1, 20, 4), normal(t, "k", 2, 20, 4), normal(t, "v", 3, 20, 4)
	npz, tensors := written(t, "in.npz", q, k, v), written(t, "in.safetensors", q, k, v)
	folder := folderOf(t, q, k, v)
	raw := filepath.Join(t.TempDir(), "in.raw")
	if err := os.WriteFile(raw, make([]byte, 4*20*12), 0o666); err != nil {
		t.Fatal(err)
	}
	partial, locked := raw+".partial", raw+".lock"
	for _, path := range []string{partial, locked} {
		if err := os.WriteFile(path, make([]byte, 4*20*12), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	alias := filepath.Join(t.TempDir(), "alias.npz")
	if err := os.Link(npz, alias); err != nil {
		t.Skip(err)
	}
	text := filepath.Join(t.TempDir(), "text.html")
	if err := os.WriteFile(text, []byte("a text\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	dir := scorerOf(t, "fastmax")
	absent := filepath.Join(t.TempDir(), "absent")
	const lost = "is what is read, and would be lost"
	for _, x := range []struct {
		want string
		args []string
	}{
		{lost, []string{"attend", "--mechanism", "fastmax", npz, npz}},
		{lost, []string{"attend", "--mechanism", "fastmax", npz, alias}},
		{lost, []string{"attend", "--mechanism", "fastmax", "--stream", tensors, tensors}},
		{lost, []string{"attend", "--mechanism", "fastmax", "--stream", folder, filepath.Join(folder, "k.npy")}},
		{lost, []string{"attend", "--mechanism", "fastmax", "--stream", "--raw", "4,1", raw, raw}},
		{lost, []string{"attend", "--mechanism", "fastmax", "--stream", "--raw", "4,1", partial, raw}},
		{lost, []string{"attend", "--mechanism", "fastmax", "--stream", "--raw", "4,1", locked, raw}},
		{lost, []string{"attend", "--mechanism", "fastmax", "--stream", "--raw", "4,1", "--checkpoint", raw, raw, "-"}},
		{lost, []string{"maps", "--mechanism", "fastmax", "--npz", npz, npz}},
		{lost, []string{"maps", "--model", dir, "--text-file", text, "--out", text}},
		{lost, []string{"generate", "--model", dir, "--prompt-file", text, "--save", text}},
		{"absent", []string{"maps", "--mechanism", "fastmax", "--out", filepath.Join(absent, "m.png"), npz}},
		{"absent", []string{"generate", "--model", dir, "--save", filepath.Join(absent, "s")}},
		{"absent", []string{"generate", "--model", dir, "--images", "3", "--out", filepath.Join(absent, "i.png")}},
		{"absent", []string{"plan", "--n", "100", "--plot", filepath.Join(absent, "p.svg")}},
		{"-: this goes to a file", []string{"generate", "--model", dir, "--save", "-"}},
		{"-: this goes to a file", []string{"compare", "--out", "-", dir}},
		{": is a folder", []string{"maps", "--mechanism", "fastmax", "--npz", folder, npz}},
		{": not a folder", []string{"attend", "--mechanism", "fastmax", npz, filepath.Join(raw, "o.npz")}},
	} {
		refuses(t, x.want, x.args...)
	}
	// Standard input is a file that is read.
	stdin := os.Stdin
	defer func() { os.Stdin = stdin }()
	var err error
	if os.Stdin, err = os.Open(raw); err != nil {
		t.Fatal(err)
	}
	defer os.Stdin.Close()
	refuses(t, lost, "attend", "--mechanism", "fastmax", "--stream", "--raw", "4,1", "-", raw)
	refuses(t, lost, "score", "--model", dir, "--jsonl", "--out", raw)
	if len(read(t, npz)) != 3 {
		t.Errorf("%s has lost what was read", npz)
	}
	// An output of before is no input.
	for range 2 {
		works(t, "-q", "attend", "--mechanism", "fastmax", "--stream", "--fresh", folder, filepath.Join(folder, "o.npy"))
	}
}
