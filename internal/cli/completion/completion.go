// Package completion implements the verbs that complete commands in shells.
package completion

import (
	_ "embed"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/fetch"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/train"
)

// Command is the verb completion: it prints the script of a shell. The script asks the
// program for candidates.
type Command struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: ${enum}."`
}

// Help says where a script goes.
func (c *Command) Help() string {
	return "It completes verbs, flags, and the names of mechanisms, settings, presets, tasks and data sets, for which it asks the installed program. " +
		"In .bashrc: source <(farfield completion bash). In .zshrc, after compinit: source <(farfield completion zsh). " +
		"In config.fish: farfield completion fish | source." + flags.JoinExamples(
		"farfield completion bash",
		"farfield completion zsh >_farfield",
		"farfield completion fish >farfield.fish",
	)
}

//go:embed completion.bash
var bashScript string

//go:embed completion.zsh
var zshScript string

//go:embed completion.fish
var fishScript string

// Run prints the completion script of a shell. It returns an error if the output fails.
func (c *Command) Run(e *env.Env) error {
	_, err := io.WriteString(e.Stdout, map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[c.Shell])
	return err
}

// CompleteCommand answers the completion scripts. It prints the candidates for the last word, one
// in each line, with a tab and a description. The line :files or :folders asks the shell for its
// own candidates.
type CompleteCommand struct {
	Words []string `arg:"" optional:""`
}

// Run prints the candidates for the last word of a command line. It returns an error if
// the output fails.
func (c *CompleteCommand) Run(e *env.Env, ctx *kong.Context) error {
	words := c.Words
	if len(words) == 0 {
		words = []string{""}
	}
	var b strings.Builder
	for _, x := range CompleteWords(ctx.Model.Node, words) {
		b.WriteString(x.Text)
		if x.what != "" {
			b.WriteString("\t" + x.what)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(e.Stdout, b.String())
	return err
}

// Candidate is a completion of a word.
type Candidate struct{ Text, what string }

// Candidates that the shell has.
const (
	FilesHint   = ":files"
	FoldersHint = ":folders"
)

// CompleteWords returns the candidates for the last of words, which are the arguments of the
// program root. Bash makes = a word of its own, and completes only the part after it.
func CompleteWords(root *kong.Node, words []string) []Candidate {
	s := &typed{node: root, values: map[string]string{}}
	words, last := words[:len(words)-1], words[len(words)-1]
	if last == "=" {
		words, last = append(words, "="), ""
	}
	for _, w := range words {
		s.take(w)
	}
	name, value, joined := strings.Cut(last, "=")
	flag := s.flag(name)
	switch {
	case s.open != nil:
		return s.complete(s.open, last)
	case s.flagsEnded || !strings.HasPrefix(last, "-") || last == "-" && len(s.node.Children) == 0 && len(s.node.Positional) > 0:
		return s.argument(last)
	case joined && flag != nil:
		list := s.complete(flag.Value, value)
		for i := range list {
			if !strings.HasPrefix(list[i].Text, ":") {
				list[i].Text = name + "=" + list[i].Text
			}
		}
		return list
	case joined:
		return nil
	}
	return starting(s.flags(), last)
}

// typed holds the meaning of the words before the last one.
type typed struct {
	node          *kong.Node
	open          *kong.Value       // of a flag that waits for its value
	last          *kong.Flag        // that the word before names
	flagsEnded    bool              // -- was met: no flags follow
	argumentCount int               // arguments that were met
	values        map[string]string // of flags
}

func (s *typed) take(w string) {
	last := s.last
	s.last = nil
	switch {
	case s.open != nil && w == "=" && last != nil: // --flag = value
	case w == "=" && last != nil: // of a flag that needs no value
		s.open = last.Value
	case s.open != nil:
		s.values[s.open.Name] = w
		s.open = nil
	case s.flagsEnded:
		s.argumentCount++
	case w == "--":
		s.flagsEnded = true
	case strings.HasPrefix(w, "-") && w != "-":
		name, value, joined := strings.Cut(w, "=")
		flag := s.flag(name)
		switch {
		case flag == nil:
		case joined:
			s.values[flag.Name] = value
		default:
			s.last = flag
			if !flag.IsBool() && !flag.IsCounter() {
				s.open = flag.Value
			}
		}
	default:
		for _, child := range s.node.Children {
			if child.Name == w {
				s.node = child
				return
			}
		}
		s.argumentCount++
	}
}

// flag returns the flag that a word names, nil if there is none.
func (s *typed) flag(word string) *kong.Flag {
	for _, group := range s.node.AllFlags(true) {
		for _, f := range group {
			if word == "--"+f.Name || f.Tag.Negatable != "" && word == "--no-"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

func (s *typed) flags() (list []Candidate) {
	for _, group := range s.node.AllFlags(true) {
		for _, f := range group {
			list = append(list, Candidate{"--" + f.Name, f.Help})
			if f.Tag.Negatable != "" {
				list = append(list, Candidate{"--no-" + f.Name, f.Help})
			}
		}
	}
	return list
}

// argument completes a verb, or an argument of one.
func (s *typed) argument(word string) []Candidate {
	var list []Candidate
	for _, child := range s.node.Children {
		if !child.Hidden {
			list = append(list, Candidate{child.Name, child.Help})
		}
	}
	if n := len(s.node.Positional); len(list) == 0 && n > 0 {
		arg := s.node.Positional[min(s.argumentCount, n-1)]
		if s.argumentCount < n || arg.IsCumulative() {
			return s.complete(arg, word)
		}
	}
	return starting(list, word)
}

// NamedLists holds the lists that the tag complete of a flag or an argument can name.
var NamedLists = map[string]func(s *typed) []Candidate{
	"mechanisms": func(*typed) []Candidate { return mechanisms() },
	"mixers": func(*typed) []Candidate {
		list := mechanisms()
		for _, name := range nn.MixerNames() {
			row, _ := nn.LookupMixer(name)
			list = append(list, Candidate{name, row.Doc})
		}
		return list
	},
	"settings": func(s *typed) (list []Candidate) {
		first, _, _ := strings.Cut(s.values["mechanism"], ",")
		if row, err := flags.LookupRow(first); err == nil {
			for _, x := range row.Settings {
				list = append(list, Candidate{x.Name + "=", x.Doc})
			}
		}
		return list
	},
	"task-settings": func(s *typed) (list []Candidate) {
		if row, err := task.Lookup(s.values["task"]); err == nil {
			for _, x := range row.Settings {
				list = append(list, Candidate{x.Name + "=", x.Doc})
			}
		}
		return list
	},
	"tasks": func(*typed) (list []Candidate) {
		for _, r := range task.Rows() {
			list = append(list, Candidate{r.Name, r.Doc})
		}
		return list
	},
	"presets": func(*typed) (list []Candidate) {
		for _, p := range train.Presets() {
			list = append(list, Candidate{p.Name, p.Description})
		}
		return list
	},
	"sets":   func(*typed) []Candidate { return listSets(fetch.Sets()) },
	"models": func(*typed) []Candidate { return listSets(fetch.Models()) },
	"mechanisms-or-files": func(*typed) []Candidate {
		return []Candidate{{"mechanisms", "the catalogue, and the laws that each keeps"}, {FilesHint, ""}}
	},
}

func listSets(sets []fetch.Set) (list []Candidate) {
	for _, x := range sets {
		list = append(list, Candidate{x.Name, x.Doc})
	}
	return list
}

func mechanisms() (list []Candidate) {
	for _, name := range mechanism.Names() {
		if row, err := mechanism.Lookup(name); err == nil {
			list = append(list, Candidate{name, row.Doc})
		}
	}
	return list
}

// complete completes a value: by its tag complete, which names a list or is one, by its
// enumeration, or with files. In a comma-separated list only the last element is
// completed.
func (s *typed) complete(v *kong.Value, word string) []Candidate {
	before := ""
	if v.IsSlice() && v.Tag.Sep == ',' {
		at := strings.LastIndexByte(word, ',') + 1
		before, word = word[:at], word[at:]
	}
	var list []Candidate
	how := v.Tag.Get("complete")
	hint := v.Tag.PlaceHolder
	switch from := NamedLists[how]; {
	case from != nil:
		list = from(s)
	case how != "" || v.Enum != "":
		if how == "" {
			how = v.Enum
		}
		for _, text := range strings.Split(how, ",") {
			list = append(list, Candidate{Text: text})
		}
	case strings.HasPrefix(hint, "DIR"):
		return []Candidate{{Text: FoldersHint}}
	case v.Flag == nil, strings.HasPrefix(hint, "FILE"), strings.HasPrefix(hint, "PATH"):
		return []Candidate{{Text: FilesHint}}
	}
	list = starting(list, word)
	for i := range list {
		if list[i].Text != FilesHint {
			list[i].Text = before + list[i].Text
		}
	}
	return list
}

// starting returns the candidates that begin with word, each with the first sentence of
// its description.
func starting(list []Candidate, word string) (some []Candidate) {
	const most = 60 // characters
	for _, x := range list {
		if x.Text != FilesHint && !strings.HasPrefix(x.Text, word) {
			continue
		}
		x.what, _, _ = strings.Cut(x.what, ". ")
		x.what = strings.TrimSuffix(strings.Join(strings.Fields(x.what), " "), ".")
		if letters := []rune(x.what); len(letters) > most {
			x.what = string(letters[:most-1]) + "…"
		}
		some = append(some, x)
	}
	return some
}
