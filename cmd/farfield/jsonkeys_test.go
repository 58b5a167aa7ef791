package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/attend"
	"github.com/farfield-ml/farfield/internal/cli/compare"
	"github.com/farfield-ml/farfield/internal/cli/data"
	"github.com/farfield-ml/farfield/internal/cli/eval"
	"github.com/farfield-ml/farfield/internal/cli/exchange"
	"github.com/farfield-ml/farfield/internal/cli/generate"
	attentionmaps "github.com/farfield-ml/farfield/internal/cli/maps"
	"github.com/farfield-ml/farfield/internal/cli/plan"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/score"
	"github.com/farfield-ml/farfield/internal/cli/search"
	"github.com/farfield-ml/farfield/internal/cli/train"
)

var writeKeys = flag.Bool("write", false, "write the keys of JSON into docs/command.md")

// keyStyle is lower snake_case.
var keyStyle = regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)

// jsonKeys adds the keys that values of a type have in JSON. What writes its own JSON
// is left to the verbs' outputs.
func jsonKeys(keys map[string]bool, of reflect.Type, seen map[reflect.Type]bool) {
	if seen[of] || reflect.PointerTo(of).Implements(reflect.TypeFor[json.Marshaler]()) {
		return
	}
	seen[of] = true
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		jsonKeys(keys, of.Elem(), seen)
	case reflect.Struct:
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported() && !f.Anonymous:
				continue
			case f.Anonymous && name == "":
			case name == "":
				keys[f.Name] = true
			default:
				keys[name] = true
			}
			jsonKeys(keys, f.Type, seen)
		}
	}
}

// checkKeys reports keys of another style in JSON values, one after the other.
func checkKeys(t *testing.T, verb, text string) {
	t.Helper()
	var walk func(x any)
	walk = func(x any) {
		switch x := x.(type) {
		case map[string]any:
			for key, value := range x {
				if !keyStyle.MatchString(key) {
					t.Errorf("%s --json prints the key %q, which is not lower snake_case", verb, key)
				}
				// Classes have the names that the data give them.
				if key != "probabilities" {
					walk(value)
				}
			}
		case []any:
			for _, value := range x {
				walk(value)
			}
		}
	}
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
		var x any
		if err := d.Decode(&x); err != nil {
			t.Errorf("%s --json: %v", verb, err)
			return
		}
		walk(x)
	}
}

// printed are the types that verbs print with --json. A finding, of inspect, has keys
// that depend on what it is of.
var printed = map[string][]any{
	"attend":       {attend.Report{}, attend.StreamReport{}},
	"bench":        {bench.Case{}},
	"compare":      {compare.Comparison{}},
	"data fetch":   {data.ListedSet{}},
	"data list":    {data.ListedSet{}},
	"data verify":  {data.ListedSet{}},
	"eval":         {eval.Report{}},
	"exchange":     {exchange.Report{}},
	"generate":     {generate.Report{}, generate.IDReport{}},
	"inspect":      {},
	"maps":         {attentionmaps.Map{}},
	"models fetch": {data.ListedSet{}},
	"models list":  {data.ListedSet{}},
	"plan":         {plan.Report{}},
	"predict":      {},
	"train":        {runs.Report{}, train.SeedsReport{}},
	"score":        {score.Report{}},
	"search":       {search.Found{}},
}

// TestKeysOfJSONHaveOneStyle walks what every verb prints with --json, and holds
// docs/command.md to it.
func TestKeysOfJSONHaveOneStyle(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "command.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	const head = "| verb | keys |\n|---|---|\n"
	_, table, _ := strings.Cut(page, head)
	table, _, _ = strings.Cut(table, "\n\n")
	lines := map[string]bool{}
	for _, leaf := range commandLine(t).Model.Leaves(true) {
		verb := strings.Join(strings.Fields(leaf.FullPath())[1:], " ")
		if strings.HasPrefix(verb, "bench ") {
			verb = "bench"
		}
		types, known := printed[verb]
		if hasJSON := slices.ContainsFunc(leaf.Flags, func(f *kong.Flag) bool { return f.Name == "json" }); !hasJSON {
			continue
		}
		if !known {
			t.Errorf("%s has --json: its types are not in the list of this test", verb)
		}
		keys := map[string]bool{}
		for _, x := range types {
			jsonKeys(keys, reflect.TypeOf(x), map[reflect.Type]bool{})
		}
		all := slices.Sorted(maps.Keys(keys))
		for _, key := range all {
			if !keyStyle.MatchString(key) {
				t.Errorf("%s --json prints the key %q, which is not lower snake_case", verb, key)
			}
		}
		if len(all) > 0 {
			lines[fmt.Sprintf("| `%s` | %s |", verb, strings.Join(all, " "))] = true
		}
	}
	if want := strings.Join(slices.Sorted(maps.Keys(lines)), "\n"); table != want {
		if *writeKeys {
			err = os.WriteFile(path, []byte(strings.Replace(page, head+table, head+want, 1)), 0o666)
		}
		t.Errorf("docs/command.md lists other keys (go test ./cmd/farfield -run KeysOfJSON -write): %v", err)
	}
	for _, command := range []string{"inspect", "plan --n 100", "data list"} {
		args := append(strings.Fields(command), "--json")
		works(t, args...) // which checks the keys
	}
}
