package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/cli/search"
)

// vectorsFile writes rows as an .npy.
func vectorsFile(t *testing.T, name string, rows [][]float32) string {
	t.Helper()
	var data []float32
	for _, r := range rows {
		data = append(data, r...)
	}
	a, err := array.New("vectors", data, len(rows), len(rows[0]))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := array.WriteNPY(f, a); err != nil {
		t.Fatal(err)
	}
	return path
}

// recordsFile writes rows as JSON lines with texts.
func recordsFile(t *testing.T, rows [][]float32) string {
	t.Helper()
	var b strings.Builder
	for i, r := range rows {
		text, err := json.Marshal(map[string]any{"text": fmt.Sprint("text ", i), "vector": r})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	path := filepath.Join(t.TempDir(), "vectors.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSearchRanksByCosineThenRow(t *testing.T) {
	rows := [][]float32{{1, 0}, {0, 2}, {3, 3}, {-1, 0}, {0, 0}, {0, 1}}
	npy := vectorsFile(t, "vectors.npy", rows)
	queries := vectorsFile(t, "queries.npy", [][]float32{{0, 5}, {1e30, 0}})
	want := "0\t1\t1.000000\t\n0\t5\t1.000000\t\n0\t2\t0.707107\t\n1\t0\t1.000000\t\n1\t2\t0.707107\t\n1\t1\t0.000000\t\n"
	for _, threads := range []string{"1", "3"} {
		if out := works(t, "search", npy, "--queries", queries, "--top", "3", "--threads", threads); out != want {
			t.Errorf("threads %s: printed %q, want %q", threads, out, want)
		}
	}
	out := works(t, "search", recordsFile(t, rows), "--queries", queries, "--top", "2", "--json")
	first, _, _ := strings.Cut(out, "\n")
	var found search.Found
	if err := json.Unmarshal([]byte(first), &found); err != nil {
		t.Fatal(err)
	}
	if len(found.Hits) != 2 || found.Hits[0] != (search.Hit{Row: 1, Cosine: 1, Text: "text 1"}) || found.Hits[1].Text != "text 5" {
		t.Errorf("printed %s", out)
	}
}

func TestSearchKeepsRecordsWithoutVectorAsRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vectors.jsonl")
	content := `{"text":"","vector":null}` + "\n\n" + `{"text":"a","vector":[1,2]}` + "\n" + `{"text":"","vector":null}` + "\n" + `{"text":"b","vector":[2,1]}` + "\n"
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	out := works(t, "search", path, "--queries", vectorsFile(t, "q.npy", [][]float32{{2, 1}}))
	if want := "0\t3\t1.000000\tb\n0\t1\t0.800000\ta\n0\t0\t0.000000\t\n0\t2\t0.000000\t\n"; out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
}

// A file may begin with more records without a vector than a block of rows has.
func TestSearchReadsManyRecordsBeforeTheFirstVector(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vectors.jsonl")
	wrote(t, path, strings.Repeat("{\"vector\":null}\n", 1<<14+5)+"{\"vector\":[1,2]}\n")
	out := works(t, "search", path, "--queries", vectorsFile(t, "q.npy", [][]float32{{2, 1}}), "--top", "2")
	if want := "0\t16389\t0.800000\t\n0\t0\t0.000000\t\n"; out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
}

func TestSearchRefusesRecordsWithoutNumbers(t *testing.T) {
	path, queries := filepath.Join(t.TempDir(), "vectors.jsonl"), vectorsFile(t, "q.npy", [][]float32{{2, 1}})
	for record, want := range map[string]string{
		`{"vector":[null,2]}`:             `line 2: vector: has null among its numbers`,
		`{"Vector":[1,2]}`:                `line 2: has no field "vector"`,
		`{"text":"vector"}`:               `line 2: has no field "vector"`,
		`{"VECTOR":[5,6],"vector":["1"]}`: `line 2: vector: is no list of numbers: ["1"]`,
	} {
		wrote(t, path, "{\"vector\":[1,2],\"Vector\":7}\n"+record+"\n")
		refuses(t, want, "search", path, "--queries", queries)
	}
}

// Blank lines are texts of embed, but between records they are not.
func TestSearchPrintsTheTextsThatEmbedRead(t *testing.T) {
	dir, model := t.TempDir(), scorerOf(t, "fastmax")
	path, npy := filepath.Join(dir, "texts"), filepath.Join(dir, "vectors.npy")
	const bodies = "{\"body\":\"alpha\"}\n\n{\"body\":\"beta beta\"}\n\n{\"body\":\"gamma 123\"}\n"
	for _, c := range []struct {
		content, query, row string
		flags               []string
	}{
		{bodies, "gamma 123", "2", []string{"--field", "body"}},
		{strings.ReplaceAll(bodies, "body", "text"), "gamma 123", "2", nil},
		{strings.ReplaceAll(bodies, "body", "text"), `{"text":"gamma 123"}`, "4", []string{"--no-jsonl"}},
		{"alpha\n\ngamma 123", "gamma 123", "2", nil},
	} {
		wrote(t, path, c.content)
		works(t, append([]string{"embed", "--model", model, "--out", npy, path}, c.flags...)...)
		args := append([]string{"search", "--model", model, npy, "--texts", path, "--top", "1", c.query}, c.flags...)
		if out, want := works(t, args...), "0\t"+c.row+"\t1.000000\t"+c.query+"\n"; out != want {
			t.Errorf("%q: printed %q, want %q", c.flags, out, want)
		}
	}
	wrote(t, path, "alpha\nbeta\n")
	refuses(t, "--texts: "+path+" has 2 texts, "+npy+" 3 vectors", "search", "--model", model, npy, "--texts", path, "gamma")
	refuses(t, path+": line 1: is not a JSON object", "search", "--model", model, npy, "--texts", path, "--jsonl", "gamma")
	refuses(t, path+": line 1: is not a JSON object", "search", "--model", model, npy, "--queries", path, "--field", "body")
	refuses(t, "--jsonl: needs --texts", "search", "--model", model, npy, "--jsonl", "gamma")
}

func TestSearchRefusesBadInput(t *testing.T) {
	npy := vectorsFile(t, "vectors.npy", [][]float32{{1, 0}})
	wide := vectorsFile(t, "wide.npy", [][]float32{{1, 0, 0}})
	words := filepath.Join(t.TempDir(), "words.txt")
	if err := os.WriteFile(words, []byte("no record\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	refuses(t, "either texts or --queries", "search", npy)
	refuses(t, "--model: is not given", "search", npy, "a text")
	refuses(t, "--top: 0 is less than 1", "search", npy, "--queries", npy, "--top", "0")
	refuses(t, "width 3, the file that is searched has 2", "search", npy, "--queries", wide)
	refuses(t, "line 1: ", "search", words, "--queries", wide)
	refuses(t, "--field: needs --texts, or records", "search", "--model", "run", npy, "--field", "body", "a text")
	nan := float32(0)
	refuses(t, "row 0, element 1 is NaN", "search", vectorsFile(t, "nan.npy", [][]float32{{1, nan / nan}}), "--queries", npy)
}

func TestSearchPutsTheFoldersPromptBeforeQueries(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tinyModel)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"modules.json":          `[{"path":"","type":"sentence_transformers.models.Transformer"},{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]`,
		"1_Pooling/config.json": `{"pooling_mode":"mean"}`,
	} {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	docs := textsOf(t, "the cat\na dog ran\nsun on the mat\n")
	vectors := filepath.Join(t.TempDir(), "v.npy")
	find := func(want, note string, flags ...string) {
		t.Helper()
		status, out, errs := command(t, append([]string{"search", vectors, "--model", dir, "--top", "3"}, flags...)...)
		if status != 0 || out != want || errs != note {
			t.Errorf("%q: status %d, %q with the note %q, want %q with %q", flags, status, out, errs, want, note)
		}
	}
	embed := func(note string, flags ...string) {
		t.Helper()
		status, _, errs := command(t, append([]string{"embed", "--model", dir, "--out", vectors, docs}, flags...)...)
		if status != 0 || errs != note {
			t.Errorf("%q: status %d with the note %q, want %q", flags, status, errs, note)
		}
	}
	embed("")
	want := works(t, "search", vectors, "--model", dir, "--top", "3", "the rain")
	plain := works(t, "search", vectors, "--model", dir, "--top", "3", "rain")
	refuses(t, `--prompt: "query", but the folder has no prompts`, "search", vectors, "--model", dir, "--prompt", "query", "rain")
	refuses(t, `--prompt: "query", but the folder has no prompts`, "embed", "--model", dir, "--prompt", "query", docs)
	refuses(t, "--prompt: needs --model", "search", vectors, "--queries", vectors, "--prompt", "query")
	config := filepath.Join(dir, "config_sentence_transformers.json")
	if err := os.WriteFile(config, []byte(`{"prompts":{"query":"the ","document":"a dog "},"default_prompt_name":null}`), 0o644); err != nil {
		t.Fatal(err)
	}
	embed("no prompt is put before texts; the folder has document, query, which --prompt NAME asks for\n")
	const note = `queries have the folder's prompt query: "the "; vectors of documents need embed --prompt document` + "\n"
	find(want, note, "rain")
	find(want, "", "--prompt", "query", "rain")
	find(want, "", "--prompt-name", "query", "rain")
	find(plain, "", "--prompt", "", "rain")
	refuses(t, `--prompt: "question" is none of document, query`, "search", vectors, "--model", dir, "--prompt", "question", "rain")
	before, err := os.ReadFile(vectors)
	if err != nil {
		t.Fatal(err)
	}
	embed("", "--prompt", "document")
	if after, err := os.ReadFile(vectors); err != nil || string(after) == string(before) {
		t.Errorf("the prompt of documents changes no vector: %v", err)
	}
}
