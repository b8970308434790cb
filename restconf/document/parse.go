package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of a file: what is larger was not written by hand, and is better sent in parts.
const (
	MaxBytes   = 32 << 20
	maxValues  = 4 << 20 // with each alias of YAML counted as what it stands for
	maxDepth   = 100
	maxMembers = 256 // of one object
)

var (
	errTooMany = fmt.Errorf("it has more than %d values: split it", maxValues)
	errTooDeep = fmt.Errorf("it is nested more than %d deep", maxDepth)
)

// parse reads the documents of a file. A file that looks like JSON and is not may be YAML.
func parse(f File) ([]*Value, error) {
	if len(f.Text) > MaxBytes {
		return nil, fmt.Errorf("read %s: it has more than %d bytes: split it", f.Name, MaxBytes)
	}
	trimmed := bytes.TrimSpace(f.Text)
	if len(trimmed) == 0 || trimmed[0] != '{' && trimmed[0] != '[' {
		return parseYAML(f)
	}
	documents, err := parseJSON(f)
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		if documents, yamlErr := parseYAML(f); yamlErr == nil || bytes.Contains(trimmed, []byte("\n---")) {
			return documents, yamlErr
		}
	}
	return documents, err
}

// jsonReader reads JSON and counts lines.
type jsonReader struct {
	json   *jsontext.Decoder
	starts []int64 // offsets at which lines begin
	values int
}

func parseJSON(f File) ([]*Value, error) {
	r := &jsonReader{json: jsontext.NewDecoder(bytes.NewBuffer(f.Text), jsontext.AllowDuplicateNames(true)), starts: []int64{0}}
	for i, c := range f.Text {
		if c == '\n' {
			r.starts = append(r.starts, int64(i)+1)
		}
	}
	var documents []*Value
	for {
		if r.json.PeekKind() == 0 {
			_, err := r.json.ReadToken()
			if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return documents, nil
			}
			return nil, r.at(f, err)
		}
		d, err := r.value(0)
		if err != nil {
			return nil, r.at(f, err)
		}
		documents = append(documents, d)
	}
}

// at gives an error the line up to which was read, or that of a syntax error.
func (r *jsonReader) at(f File, err error) error {
	offset := r.json.InputOffset()
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		offset = syntax.ByteOffset
	}
	return &Error{f.Name, r.line(offset), err}
}

// line is the line of an offset.
func (r *jsonReader) line(offset int64) int {
	return sort.Search(len(r.starts), func(i int) bool { return r.starts[i] > offset })
}

// value reads one value.
func (r *jsonReader) value(depth int) (*Value, error) {
	if r.values++; r.values > maxValues {
		return nil, errTooMany
	}
	if depth > maxDepth {
		return nil, errTooDeep
	}
	token, err := r.json.ReadToken()
	if err != nil {
		return nil, err
	}
	v := &Value{Line: r.line(r.json.InputOffset() - 1)} // a token lies on one line
	switch token.Kind() {
	case '{':
		v.kind = object
		return v, r.object(v, depth)
	case '[':
		v.kind = array
		return v, r.array(v, depth)
	case '"':
		v.kind, v.text = text, token.String()
	case 'n':
	default:
		v.kind, v.text = literal, token.String()
	}
	return v, nil
}

func (r *jsonReader) object(v *Value, depth int) error {
	for r.json.PeekKind() != '}' {
		name, err := r.json.ReadToken()
		if err != nil {
			return err
		}
		m := Member{Name: name.String(), Line: r.line(r.json.InputOffset() - 1)}
		if m.Value, err = r.value(depth + 1); err != nil {
			return err
		}
		if err := v.add(m); err != nil {
			return err
		}
	}
	_, err := r.json.ReadToken()
	return err
}

func (r *jsonReader) array(v *Value, depth int) error {
	for r.json.PeekKind() != ']' {
		element, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		v.elements = append(v.elements, element)
	}
	_, err := r.json.ReadToken()
	return err
}
