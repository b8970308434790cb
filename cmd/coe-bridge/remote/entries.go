package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/entrykind"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/restconf/client"
	"github.com/coe-bridge/coe-bridge/restconf/document"
	"github.com/coe-bridge/coe-bridge/yang"
)

func registerFiles(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "file", "f", nil, "YAML or JSON file, folder of such files, or - for standard input; may be repeated")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml", "json")
}

// entries are the entries of one file.
type entries []*document.Entry

// readEntries reads all files. It fails, with all errors of syntax, if one cannot be parsed.
func readEntries(c *entrykind.Catalog, stdin io.Reader, names []string) (all []entries, err error) {
	if len(names) == 0 {
		return nil, errors.New("name a file with -f, or - for standard input")
	}
	paths, err := expand(names)
	if err != nil {
		return nil, err
	}
	reader := c.Reader()
	var wrong []error
	for _, path := range paths {
		f, err := readFile(stdin, path)
		if err != nil {
			return nil, err
		}
		read, err := reader.Read(f)
		wrong = append(wrong, err)
		if len(read) > 0 {
			all = append(all, read)
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("read %s: it has no data", names[0])
	}
	return all, nil
}

// expand replaces folders by their files.
func expand(names []string) (paths []string, err error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if name == "-" || err == nil && !info.IsDir() {
			paths = append(paths, name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read input: %w", err)
		}
		within, err := os.ReadDir(name) // sorted by name
		if err != nil {
			return nil, fmt.Errorf("read input: %w", err)
		}
		before := len(paths)
		for _, one := range within {
			if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(one.Name())) && !one.IsDir() {
				paths = append(paths, filepath.Join(name, one.Name()))
			}
		}
		if len(paths) == before {
			return nil, fmt.Errorf("read %s: no file in it ends in .yaml, .yml or .json", name)
		}
	}
	return paths, nil
}

func readFile(stdin io.Reader, path string) (document.File, error) {
	f := document.File{Name: path}
	in := io.NopCloser(stdin)
	if path == "-" {
		f.Name = "standard input"
	} else {
		opened, err := os.Open(path)
		if err != nil {
			return f, fmt.Errorf("read input: %w", err)
		}
		in = opened
	}
	defer func() { _ = in.Close() }()
	var err error
	if f.Text, err = io.ReadAll(io.LimitReader(in, document.MaxBytes+1)); err != nil {
		return f, fmt.Errorf("read %s: %w", f.Name, err)
	}
	return f, nil
}

func (f entries) file() string { return f[0].File }

// common is the path of the smallest resource with all entries: the one entry itself, their
// top container, or the datastore.
func (f entries) common() string {
	if len(f) == 1 && len(f[0].Problems) == 0 { // else its key may be missing
		return f[0].Target()
	}
	for _, e := range f {
		if e.Top() != f[0].Top() {
			return ""
		}
	}
	return "/" + entrykind.TopName(f[0])
}

// oneByOne is the largest number of entries that are read one by one, not by container.
const oneByOne = 20

// state reads the entries as they are in the datastore, by target. Before that it reads the
// entity-tag of the resource at, which contains them.
func (c *editor) state(ctx context.Context, at string, f entries) (tag string, there map[string]*document.Entry, err error) {
	if tag, err = c.Tag(ctx, at); err != nil {
		return "", nil, err
	}
	var paths []string
	wrong := map[string]bool{}
	for _, e := range f {
		path := e.Target()
		wrong[path] = len(e.Problems) > 0
		if len(f) > oneByOne || e.Key == nil {
			path = "/" + entrykind.TopName(e)
		}
		if !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	there = map[string]*document.Entry{}
	for _, path := range paths {
		all, err := c.entries(ctx, path)
		if _, refused := errors.AsType[*client.Refusal](err); refused && wrong[path] {
			continue // the error of the edit has a line
		}
		if err != nil {
			return "", nil, err
		}
		for _, e := range all {
			there[e.Target()] = e
		}
	}
	return tag, there, nil
}

// editor is a client that reads documents.
type editor struct {
	*client.Client
	catalog *entrykind.Catalog
}

func newEditor(f *flags.Bridge) (*editor, error) {
	c, err := f.Client()
	if err != nil {
		return nil, err
	}
	known, err := entrykind.Load()
	return &editor{c, known}, err
}

// entries reads the entries at a path below the datastore.
func (c *editor) entries(ctx context.Context, path string) (entries, error) {
	text, err := c.Data(ctx, path)
	if err != nil || text == nil {
		return nil, err
	}
	all, err := c.catalog.Reader().Read(document.File{Name: c.URL + client.DataPath + path, Text: text})
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return all, nil
}

// changedSince returns an entry that has changed, and does not equal the file; nil if there
// is none.
func (f entries) changedSince(before, now map[string]*document.Entry) *document.Entry {
	for _, e := range f {
		was, is := before[e.Target()], now[e.Target()]
		same := was == is || was != nil && was.Same(is)
		if !same && !e.Same(is) {
			return e
		}
	}
	return nil
}

// located adds the lines of the file to the errors of a bridge.
func (f entries) located(err error) error {
	return f.refused(err, func(e *document.Entry, one *yang.Error) error { return e.At(one.Path, one) })
}

// refused turns the errors of a bridge into errors of entries, by say. Any other error
// stays as it is.
func (f entries) refused(err error, say func(*document.Entry, *yang.Error) error) error {
	refused, ok := errors.AsType[*client.Refusal](err)
	if !ok || len(refused.Edits) == 0 && len(refused.Errors) == 0 {
		return err
	}
	var wrong []error
	for i, e := range f {
		for _, one := range refused.Edits[strconv.Itoa(i)] {
			wrong = append(wrong, say(e, one))
		}
	}
	for _, one := range refused.Errors {
		if i := slices.IndexFunc(f, func(e *document.Entry) bool { return e.Has(one.Path) }); i >= 0 {
			wrong = append(wrong, say(f[i], one))
		} else {
			wrong = append(wrong, fmt.Errorf("%s: %w", f.file(), one))
		}
	}
	return errors.Join(wrong...)
}
