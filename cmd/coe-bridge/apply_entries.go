package main

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

	"github.com/coe-bridge/coe-bridge/restconf/document"
	"github.com/coe-bridge/coe-bridge/yang"
)

func registerFiles(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "file", "f", nil, "file of YAML or JSON, folder of such files, or - for standard input; may be given again")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml", "json")
}

// entries are those of one file.
type entries []*document.Entry

// readEntries reads all files. It fails, with all that is wrong with their form, when
// one can't be taken apart.
func (c *catalog) readEntries(stdin io.Reader, names []string) (all []entries, err error) {
	if len(names) == 0 {
		return nil, errors.New("name a file with -f, or - for standard input")
	}
	paths, err := expand(names)
	if err != nil {
		return nil, err
	}
	reader := c.reader()
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
		return nil, fmt.Errorf("read %s: there is no data in it", names[0])
	}
	return all, nil
}

// expand puts the files of folders in their place.
func expand(names []string) (paths []string, err error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if name == "-" || err == nil && !info.IsDir() {
			paths = append(paths, name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read what to write: %w", err)
		}
		within, err := os.ReadDir(name) // sorted by name
		if err != nil {
			return nil, fmt.Errorf("read what to write: %w", err)
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
			return f, fmt.Errorf("read what to write: %w", err)
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

// common is the path of what all entries are in: the one entry itself, their top
// container, or the datastore.
func (f entries) common() string {
	if len(f) == 1 && len(f[0].Problems) == 0 { // or else its key may be none
		return f[0].Target()
	}
	for _, e := range f {
		if e.Top() != f[0].Top() {
			return ""
		}
	}
	return "/" + topName(f[0])
}

// oneByOne is up to how many entries are read one by one, not with all beside them.
const oneByOne = 20

// state reads what is there of entries, by target, and before that the entity-tag of at,
// which they are in.
func (c *editor) state(ctx context.Context, at string, f entries) (tag string, there map[string]*document.Entry, err error) {
	if tag, err = c.tag(ctx, at); err != nil {
		return "", nil, err
	}
	var paths []string
	wrong := map[string]bool{}
	for _, e := range f {
		path := e.Target()
		wrong[path] = len(e.Problems) > 0
		if len(f) > oneByOne || e.Key == nil {
			path = "/" + topName(e)
		}
		if !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	there = map[string]*document.Entry{}
	for _, path := range paths {
		all, err := c.entries(ctx, path)
		if _, refused := errors.AsType[*refusal](err); refused && wrong[path] {
			continue // the edit is refused too, and that has a line
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

// editor is a client that knows what documents say.
type editor struct {
	*client
	catalog *catalog
}

func (f *clientFlags) editor() (*editor, error) {
	c, err := f.client()
	if err != nil {
		return nil, err
	}
	known, err := loadCatalog()
	return &editor{c, known}, err
}

// entries reads the entries at a path below the datastore.
func (c *editor) entries(ctx context.Context, path string) (entries, error) {
	text, err := c.data(ctx, path)
	if err != nil || text == nil {
		return nil, err
	}
	all, err := c.catalog.reader().Read(document.File{Name: c.url + dataPath + path, Text: text})
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return all, nil
}

// changedSince is an entry that is not what it was, and not what it is to be; nil where
// there is none.
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

// located gives what a bridge found wrong with the file its lines.
func (f entries) located(err error) error {
	return f.refused(err, func(e *document.Entry, one *yang.Error) error { return e.At(one.Path, one) })
}

// refused is an error with what a bridge found wrong with entries, each thing in the
// words of say; another error stays as it is.
func (f entries) refused(err error, say func(*document.Entry, *yang.Error) error) error {
	refused, ok := errors.AsType[*refusal](err)
	if !ok || len(refused.edits) == 0 && len(refused.errors) == 0 {
		return err
	}
	var wrong []error
	for i, e := range f {
		for _, one := range refused.edits[strconv.Itoa(i)] {
			wrong = append(wrong, say(e, one))
		}
	}
	for _, one := range refused.errors {
		if i := slices.IndexFunc(f, func(e *document.Entry) bool { return e.Has(one.Path) }); i >= 0 {
			wrong = append(wrong, say(f[i], one))
		} else {
			wrong = append(wrong, fmt.Errorf("%s: %w", f.file(), one))
		}
	}
	return errors.Join(wrong...)
}
