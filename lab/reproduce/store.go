package reproduce

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/infile"
)

// folder is where the results of a row lie.
func (o *Options) folder(r *Row) string {
	return filepath.Join(o.Out, r.Name, o.Budget.String())
}

// store is the folder of a row's results.
type store struct{ dir string }

func (s store) path(p *Piece) string { return filepath.Join(s.dir, "pieces", p.Name+".json") }

// load returns the record of a piece, nil if there is none of its configuration.
func (s store) load(p *Piece) (*Record, error) {
	data, err := readBounded(s.path(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	record := new(Record)
	if err := json.Unmarshal(data, record); err != nil {
		return nil, fmt.Errorf("%s: %w; delete it to make it again", s.path(p), err)
	}
	config, err := json.Marshal(p.Config)
	if err != nil {
		return nil, err
	}
	var saved bytes.Buffer
	if err := json.Compact(&saved, record.Config); err != nil || !bytes.Equal(saved.Bytes(), config) || record.Piece != p.Name {
		return nil, nil
	}
	return record, nil
}

func readBounded(path string) ([]byte, error) {
	f, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := readText(f)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return data, err
}

// begun is what a piece was when its work began, the content of a file beside that
// work.
type begun struct {
	Config json.RawMessage `json:"config"`
	Build  Build           `json:"build"`
}

// begin returns the folder of a piece's work and the build that began it. What is
// there of another configuration goes.
func (s store) begin(p *Piece, config json.RawMessage, build Build) (folder string, by Build, err error) {
	folder = s.work(p)
	mark := folder + ".json"
	data, err := readBounded(mark)
	if err == nil {
		var b begun
		var saved bytes.Buffer
		if json.Unmarshal(data, &b) == nil && json.Compact(&saved, b.Config) == nil && bytes.Equal(saved.Bytes(), config) {
			return folder, b.Build, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", by, err
	}
	if err := os.RemoveAll(folder); err != nil {
		return "", by, err
	}
	if err := atomicfile.MakeFolder(filepath.Dir(mark)); err != nil {
		return "", by, err
	}
	return folder, build, writeJSON(mark, begun{config, build})
}

// work is the folder of a piece's work.
func (s store) work(p *Piece) string { return filepath.Join(s.dir, "work", p.Name) }

// end removes the work, if any, of a piece that has a record.
func (s store) end(folder string) error {
	return errors.Join(os.RemoveAll(folder), os.RemoveAll(folder+".json"))
}

// make runs a piece, or goes on with it, and saves what comes of it. The record has
// the build that began: what has changed since is not all of the result.
func (s store) make(ctx context.Context, o *Options, p *Piece, watch func(float64)) (*Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	config, err := json.Marshal(p.Config)
	if err != nil {
		return nil, err
	}
	folder, build, err := s.begin(p, config, o.Build)
	if err != nil {
		return nil, err
	}
	r := &Record{Piece: p.Name, Config: config, Build: build, Machine: bench.DescribeMachine(0).String(), Started: time.Now().UTC()}
	result, err := p.run(&Work{Ctx: ctx, Folder: folder, watch: watch})
	if err != nil {
		return nil, err
	}
	r.Seconds = time.Since(r.Started).Seconds()
	if r.Result, err = json.Marshal(result); err != nil {
		return nil, err
	}
	if err := atomicfile.MakeFolder(filepath.Dir(s.path(p))); err != nil {
		return nil, err
	}
	if err := writeJSON(s.path(p), r); err != nil {
		return nil, err
	}
	return r, s.end(folder)
}

// writeJSON writes a value to a file.
func writeJSON(path string, x any) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "\t")
		return e.Encode(x)
	})
}
