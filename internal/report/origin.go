package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/bench"
)

// Origin says how a report was made: the command that repeats it, the machine and the build.
type Origin struct {
	Command  string
	Seeds    []uint64
	Config   any           // names and values as [][2]string, or a value that encodes as JSON; nil: left out
	Duration time.Duration // 0: left out
	Time     time.Time     // zero: left out
	Machine  string
	Commit   string
}

// DescribeBuild returns the machine and the build of this process, with the given command.
func DescribeBuild(command string) Origin {
	return Origin{Command: command, Machine: bench.DescribeMachine(0).String(), Commit: buildCommit()}
}

// buildCommit returns the commit recorded in the build; "" if there is none.
func buildCommit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = " with changes"
		}
	}
	if revision == "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return revision + dirty
}

// Rows returns the names and values of all fields except the configuration.
func (a Origin) Rows() (rows [][2]string) {
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, [2]string{name, value})
		}
	}
	add("command", a.Command)
	if len(a.Seeds) > 0 {
		add("seeds", strings.Trim(fmt.Sprint(a.Seeds), "[]"))
	}
	add("machine", a.Machine)
	add("commit", a.Commit)
	if a.Duration > 0 {
		add("took", a.Duration.Round(time.Millisecond).String())
	}
	if !a.Time.IsZero() {
		add("at", a.Time.UTC().Format("2006-01-02 15:04 MST"))
	}
	return rows
}

// Settings returns the names and values of the configuration, as FlattenFields does. It returns an
// error if the configuration cannot be encoded as JSON.
func (a Origin) Settings() ([][2]string, error) {
	switch config := a.Config.(type) {
	case nil:
		return nil, nil
	case [][2]string:
		return config, nil
	}
	rows, err := FlattenFields(a.Config)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return rows, nil
}

// FlattenFields encodes x as JSON and returns the names and values of its fields in order. Nested
// fields have names such as model.width; a list is one value. FlattenFields returns an error if x
// cannot be encoded.
func FlattenFields(x any) ([][2]string, error) {
	text, err := atomicfile.MarshalJSON(x)
	if err != nil {
		return nil, err
	}
	return appendFields(nil, "", text)
}

// A list of more than longestList values, such as the means of all channels, is shown by its first.
const (
	longestList = 16
	shownOfList = 4
)

// appendFields appends the fields of a JSON text under name to rows.
func appendFields(rows [][2]string, name string, text []byte) ([][2]string, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	first, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch first := first.(type) {
	case json.Delim:
		if first == '{' {
			break
		}
		var list []string
		for d.More() {
			var value any
			if err := d.Decode(&value); err != nil {
				return nil, err
			}
			list = append(list, fmt.Sprint(value))
		}
		if n := len(list); n > longestList {
			list = append(list[:shownOfList:shownOfList], fmt.Sprintf("… (%d in all)", n))
		}
		return append(rows, [2]string{name, strings.Join(list, ", ")}), nil
	case json.Number:
		text := first.String()
		if x, err := first.Float64(); err == nil && strings.ContainsAny(text, ".e") {
			text = strconv.FormatFloat(x, 'g', 12, 64) // 0.1·0.003 is 0.00030000000000000003
		}
		return append(rows, [2]string{name, text}), nil
	case nil:
		return append(rows, [2]string{name, "none"}), nil
	default:
		return append(rows, [2]string{name, fmt.Sprint(first)}), nil
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if rows, err = appendFields(rows, strings.TrimPrefix(name+"."+fmt.Sprint(key), "."), value); err != nil {
			return nil, err
		}
	}
	return rows, nil
}
