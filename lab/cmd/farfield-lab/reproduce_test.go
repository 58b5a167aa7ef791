package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/lab/reproduce"
)

func TestReproduceList(t *testing.T) {
	text := works(t, "reproduce", "list")
	var list []reproduction
	if err := json.Unmarshal([]byte(works(t, "reproduce", "list", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	rows := reproduce.Rows()
	if len(list) != len(rows) {
		t.Fatalf("%d of %d are listed", len(list), len(rows))
	}
	for i, r := range rows {
		for _, want := range []string{r.Name, r.Doc, r.Source, r.Claim} {
			if !strings.Contains(text, want) {
				t.Errorf("list does not print %q", want)
			}
		}
		if x := list[i]; x.Name != r.Name || x.QuickSeconds <= 0 || x.HourSeconds < x.QuickSeconds || x.FullSeconds < x.HourSeconds {
			t.Errorf("list has %+v", x)
		}
	}
}

func TestReproduce(t *testing.T) {
	dir := t.TempDir()
	args := []string{"reproduce", "fast-kernel", "--seeds", "2", "--out", dir}
	text := works(t, args...)
	if !strings.Contains(text, "`farfield-lab reproduce fast-kernel --seeds 2`") || !strings.Contains(text, "mean of 2 seeds") {
		t.Errorf("it prints\n%s", text)
	}
	folder := filepath.Join(dir, "fast-kernel", "quick")
	for _, name := range []string{"report.html", "report.md", "scores.svg", "pieces/rank-1-scale-1-seed-2.json"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Error(err)
		}
	}
	piece := filepath.Join(folder, "pieces", "scores.json")
	before, err := os.ReadFile(piece)
	if err != nil {
		t.Fatal(err)
	}
	var out reproduce.Outcome
	if err := json.Unmarshal([]byte(works(t, append(args, "--json")...)), &out); err != nil {
		t.Fatal(err)
	}
	if out.Name != "fast-kernel" || len(out.Findings) == 0 || len(out.Tables) == 0 || len(out.Records) == 0 {
		t.Errorf("outcome %+v", out)
	}
	if after, err := os.ReadFile(piece); err != nil || string(after) != string(before) {
		t.Errorf("a piece that was there was made again, %v", err)
	}
	works(t, append(args, "--again")...)
	if after, err := os.ReadFile(piece); err != nil || string(after) == string(before) {
		t.Errorf("--again made nothing again, %v", err)
	}
}

func TestReproduceRefuses(t *testing.T) {
	t.Chdir(t.TempDir()) // records of outputs are beside the working directory
	if err := os.WriteFile("file", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ want, args string }{
		{`no reproduction "fast": there are`, "reproduce fast"},
		{`--budget: budget "day": there are quick, hour, full`, "reproduce list --budget day"},
		{"--full: --budget hour says something else", "reproduce list --full --budget hour"},
		{"--seeds: fast-fig3 draws nothing", "reproduce fast-fig3 --seeds 2"},
		{"--tune: fast-fig3 trains nothing", "reproduce fast-fig3 --tune"},
		{"--text: fast-fig3 reads no texts", "reproduce fast-fig3 --text ."},
		{"--text: stat nowhere: no such file", "reproduce bytelm --text nowhere"},
		{"--out: file: not a folder", "reproduce fast-fig3 --out file"},
		{"bytelm: task bytelm: nowhere/enwik8: it holds no enwik8", "reproduce bytelm --folder nowhere"},
	} {
		refuses(t, c.want, strings.Fields(c.args)...)
	}
}
