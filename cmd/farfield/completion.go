package main

import (
	_ "embed"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/farfield-ml/farfield/fetch"
	"github.com/farfield-ml/farfield/internal/lab/reproduce"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/train"
)

// completionCmd is the verb completion: the script of a shell, which asks the
// program itself what may come next.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: ${enum}."`
}

// Help says where a script goes.
func (c *completionCmd) Help() string {
	return "Verbs, flags, and names of mechanisms, settings, presets, tasks, data sets and reproductions are those of the program that is installed. " +
		"In .bashrc: source <(farfield completion bash). In .zshrc, behind compinit: source <(farfield completion zsh). " +
		"In config.fish: farfield completion fish | source." + examples(
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

func (c *completionCmd) Run(e *env) error {
	_, err := io.WriteString(e.stdout, map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[c.Shell])
	return err
}

// completeCmd answers the scripts: what the last of the words behind the program's
// name may become, a line for each, with what it is behind a tab. The line :files
// or :folders asks the shell for these.
type completeCmd struct {
	Words []string `arg:"" optional:""`
}

func (c *completeCmd) Run(e *env) error {
	words := c.Words
	if len(words) == 0 {
		words = []string{""}
	}
	parser, err := new(cli).parser(io.Discard, io.Discard, func() {})
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, x := range complete(parser.Model.Node, words) {
		b.WriteString(x.text)
		if x.what != "" {
			b.WriteString("\t" + x.what)
		}
		b.WriteByte('\n')
	}
	_, err = io.WriteString(e.stdout, b.String())
	return err
}

// candidate is what a word may become.
type candidate struct{ text, what string }

// Candidates that the shell has.
const (
	files   = ":files"
	folders = ":folders"
)

// complete returns what the last word may become, of the words behind root's name.
// bash takes = for a word of its own: then what stands behind it is completed alone.
func complete(root *kong.Node, words []string) []candidate {
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
		return s.of(s.open, last)
	case s.over || !strings.HasPrefix(last, "-") || last == "-" && len(s.node.Children) == 0 && len(s.node.Positional) > 0:
		return s.argument(last)
	case joined && flag != nil:
		list := s.of(flag.Value, value)
		for i := range list {
			if !strings.HasPrefix(list[i].text, ":") {
				list[i].text = name + "=" + list[i].text
			}
		}
		return list
	case joined:
		return nil
	}
	return starting(s.flags(), last)
}

// typed is what the words before the last one say.
type typed struct {
	node   *kong.Node
	open   *kong.Value       // of a flag that waits for its value
	last   *kong.Flag        // that the word before names
	over   bool              // a -- was met: no flags come behind it
	at     int               // arguments that were met
	values map[string]string // of flags
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
	case s.over:
		s.at++
	case w == "--":
		s.over = true
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
		s.at++
	}
}

// flag returns the flag that a word names, nil if there is none.
func (s *typed) flag(word string) *kong.Flag {
	for _, group := range s.node.AllFlags(true) {
		for _, f := range group {
			if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

func (s *typed) flags() (list []candidate) {
	for _, group := range s.node.AllFlags(true) {
		for _, f := range group {
			list = append(list, candidate{"--" + f.Name, f.Help})
		}
	}
	return list
}

// argument completes a verb, or an argument of one.
func (s *typed) argument(word string) []candidate {
	var list []candidate
	for _, child := range s.node.Children {
		if !child.Hidden {
			list = append(list, candidate{child.Name, child.Help})
		}
	}
	if n := len(s.node.Positional); len(list) == 0 && n > 0 {
		arg := s.node.Positional[min(s.at, n-1)]
		if s.at < n || arg.IsCumulative() {
			return s.of(arg, word)
		}
	}
	return starting(list, word)
}

// named are the lists that a tag complete of a flag or an argument names.
var named = map[string]func(s *typed) []candidate{
	"mechanisms": func(*typed) []candidate { return mechanisms() },
	"mixers": func(*typed) []candidate {
		list := mechanisms()
		for _, name := range nn.MixerNames() {
			row, _ := nn.LookupMixer(name)
			list = append(list, candidate{name, row.Doc})
		}
		return list
	},
	"settings": func(s *typed) (list []candidate) {
		first, _, _ := strings.Cut(s.values["mechanism"], ",")
		if row, err := lookup(first); err == nil {
			for _, x := range row.Settings {
				list = append(list, candidate{x.Name + "=", x.Doc})
			}
		}
		return list
	},
	"task-settings": func(s *typed) (list []candidate) {
		if row, err := task.Lookup(s.values["task"]); err == nil {
			for _, x := range row.Settings {
				list = append(list, candidate{x.Name + "=", x.Doc})
			}
		}
		return list
	},
	"tasks": func(*typed) (list []candidate) {
		for _, r := range task.Rows() {
			list = append(list, candidate{r.Name, r.Doc})
		}
		return list
	},
	"presets": func(*typed) (list []candidate) {
		for _, p := range train.Presets() {
			list = append(list, candidate{p.Name, p.Description})
		}
		return list
	},
	"sets": func(*typed) (list []candidate) {
		for _, x := range fetch.Sets() {
			list = append(list, candidate{x.Name, x.Doc})
		}
		return list
	},
	"reproductions": func(*typed) (list []candidate) {
		list = []candidate{{"list", "what there is, and what it takes"}, {"all", "one after another"}}
		for _, r := range reproduce.Rows() {
			list = append(list, candidate{r.Name, r.Doc})
		}
		return list
	},
	"mechanisms-or-files": func(*typed) []candidate {
		return []candidate{{"mechanisms", "the catalogue, and the laws that each keeps"}, {files, ""}}
	},
}

func mechanisms() (list []candidate) {
	for _, name := range mechanism.Names() {
		if row, err := mechanism.Lookup(name); err == nil {
			list = append(list, candidate{name, row.Doc})
		}
	}
	return list
}

// of completes a value: by its tag complete, which has the name of a list or a list
// itself, by what it is one of, or with files. Of a list between commas the last is
// completed.
func (s *typed) of(v *kong.Value, word string) []candidate {
	before := ""
	if v.IsSlice() && v.Tag.Sep == ',' {
		at := strings.LastIndexByte(word, ',') + 1
		before, word = word[:at], word[at:]
	}
	var list []candidate
	how := v.Tag.Get("complete")
	hint := v.Tag.PlaceHolder
	switch from := named[how]; {
	case from != nil:
		list = from(s)
	case how != "" || v.Enum != "":
		if how == "" {
			how = v.Enum
		}
		for _, text := range strings.Split(how, ",") {
			list = append(list, candidate{text: text})
		}
	case strings.HasPrefix(hint, "DIR"):
		return []candidate{{text: folders}}
	case v.Flag == nil, strings.HasPrefix(hint, "FILE"), strings.HasPrefix(hint, "PATH"):
		return []candidate{{text: files}}
	}
	list = starting(list, word)
	for i := range list {
		if list[i].text != files {
			list[i].text = before + list[i].text
		}
	}
	return list
}

// starting returns the candidates that a word may become, each with the first sentence
// of what it is.
func starting(list []candidate, word string) (some []candidate) {
	const most = 60 // characters
	for _, x := range list {
		if x.text != files && !strings.HasPrefix(x.text, word) {
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
