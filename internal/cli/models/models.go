// Package models implements the verb models: trained models, listed and fetched.
package models

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/cli/data"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/fetch"
)

// Command is the verb models: it lists and fetches trained models.
type Command struct {
	List  listCmd  `cmd:"" help:"List models: size, state and verification."`
	Fetch fetchCmd `cmd:"" help:"Fetch and verify models; continue partial downloads."`
}

type listCmd struct {
	flags.DataFolder
	JSON bool     `name:"json" help:"Print JSON instead of a table."`
	Name []string `complete:"models" arg:"" optional:"" help:"Models to describe in full; none: a table of all."`
}

// Help returns the long help text with examples.
func (c *listCmd) Help() string {
	return "Every verb takes the name of a model at hand in place of its folder. " +
		"Other models need no entry here: --model takes any folder with config.json, model.safetensors and a tokenizer." + flags.JoinExamples(
		"farfield models list",
		"farfield models list --json all-MiniLM-L6-v2",
	)
}

// Run lists models. It returns an error for an unknown name or if the output fails.
func (c *listCmd) Run(e *env.Env) error {
	folder, err := c.ModelsPath()
	if err != nil {
		return err
	}
	sets, err := lookup(c.Name)
	if err != nil {
		return err
	}
	return data.Listing{Folder: folder, JSON: c.JSON, IsFull: len(c.Name) > 0, Columns: []data.Column{
		{Name: "terms", Text: func(l *data.ListedSet) string { return l.Terms }},
	}}.Print(e, sets)
}

// lookup returns the models with names, or all models without names.
func lookup(names []string) ([]*fetch.Set, error) {
	return data.LookupSets(names, fetch.Models(), fetch.LookupModel)
}

type fetchCmd struct {
	flags.DataFolder
	SourceFolder string   `name:"from" placeholder:"DIR" help:"Take the files from DIR, verified; download nothing."`
	Offline      bool     `help:"Look for org/name in the cache of the hub alone."`
	JSON         bool     `name:"json" help:"Print JSON, as models list does."`
	Name         []string `complete:"models" arg:"" help:"Models: names of the catalogue, or org/name[@revision] of the hub."`
}

// Help returns the long help text with examples.
func (c *fetchCmd) Help() string {
	return "Files come from their canonical addresses and are verified by their checksums; the output says where files have none. " +
		"Without a network, --from takes them from a folder, such as a clone of the model's repository. " +
		"A name org/name[@revision] is fetched from the hub of HF_ENDPOINT (https://huggingface.co) with the token of HF_TOKEN, to the cache that " +
		"other programs share: HF_HUB_CACHE, or hub in HF_HOME. Only files that are read are fetched, and each is verified by the hub's checksum. " +
		"--model of a verb takes such a name, too, and fetches what is not there, unless HF_HUB_OFFLINE is set." + flags.JoinExamples(
		"farfield models fetch all-MiniLM-L6-v2",
		"farfield models fetch all-MiniLM-L6-v2 --from downloads",
		"farfield models fetch sentence-transformers/all-MiniLM-L6-v2",
		"farfield embed --model sentence-transformers/all-MiniLM-L6-v2 lines.txt",
	)
}

// Run fetches models. It returns an error for an unknown name, or if a file cannot be
// fetched or verified.
func (c *fetchCmd) Run(e *env.Env) error {
	folder, err := c.ModelsPath()
	if err != nil {
		return err
	}
	var names []string
	var hub []fetch.HubName
	for _, text := range c.Name {
		if name, is := fetch.ParseHubName(text); is {
			hub = append(hub, name)
		} else {
			names = append(names, text)
		}
	}
	switch {
	case len(hub) > 0 && (c.SourceFolder != "" || len(names) > 0):
		return env.InputErrorf("%s: is fetched from the hub, without --from and without names of the catalogue beside it", hub[0])
	case len(hub) > 0:
		return c.fetchHub(e, hub)
	case c.Offline:
		return env.InputErrorf("--offline: needs a name org/name; models fetch --from takes models of the catalogue from a folder")
	}
	sets, err := lookup(c.Name)
	if err != nil {
		return err
	}
	return data.FetchSets(e, "models", fetch.Options{Folder: folder, SourceFolder: c.SourceFolder}, sets, c.JSON)
}

// fetchHub fetches models of the hub and prints their folders.
func (c *fetchCmd) fetchHub(e *env.Env, names []fetch.HubName) error {
	hub, err := fetch.NewHub()
	if err != nil {
		return env.MarkInput(err)
	}
	hub.IsOffline = hub.IsOffline || c.Offline
	hub.OnWait = func(int) { fmt.Fprintln(e.Notes(), "waits for another process, which fetches the model") }
	list := []fetchedModel{}
	for _, name := range names {
		p := progress.NewTransfer(e)
		hub.Progress = p.ShowBytes
		dir, err := hub.Fetch(e.Context, name)
		p.Finish()
		if e.Context.Err() != nil {
			return env.Interruption{Err: e.Context.Err(), Text: fmt.Sprintf("stopped; farfield models fetch %s goes on with what is there", name)}
		}
		if err != nil {
			return err
		}
		list = append(list, fetchedModel{name.String(), dir})
		if !c.JSON {
			fmt.Fprintf(e.Stdout, "%s: in %s, verified by the checksums of the hub\n", name, dir)
		}
	}
	if c.JSON {
		return display.PrintJSON(e.Stdout, list)
	}
	return nil
}

// fetchedModel is a model of the hub in its cache.
type fetchedModel struct {
	Name   string `json:"name"`
	Folder string `json:"folder"`
}
