package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlReader turns YAML into values.
type yamlReader struct {
	file   string
	values int
}

// parseYAML reads the documents of a file: what JSON can say, with anchors, aliases and
// merge keys.
func parseYAML(f File) ([]*Value, error) {
	in := yaml.NewDecoder(bytes.NewReader(f.Text))
	r := &yamlReader{file: f.Name}
	var documents []*Value
	for {
		var node yaml.Node
		err := in.Decode(&node)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, syntaxError(f, err)
		}
		d, err := r.value(&node, 0)
		if err != nil {
			return nil, err
		}
		documents = append(documents, d)
	}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntaxError gives an error of the parser its line as ours have it.
func syntaxError(f File, err error) error {
	found := yamlLine.FindStringSubmatch(err.Error())
	if found == nil {
		return fmt.Errorf("read %s: %w", f.Name, err)
	}
	line, _ := strconv.Atoi(found[1])
	return &Error{f.Name, max(line, 1), errors.New("no YAML: " + strings.TrimPrefix(err.Error(), found[0]))}
}

func (r *yamlReader) fail(n *yaml.Node, err error) error { return &Error{r.file, n.Line, err} }

// value reads one node, and what aliases in it stand for.
func (r *yamlReader) value(n *yaml.Node, depth int) (*Value, error) {
	if r.values++; r.values > maxValues {
		return nil, r.fail(n, errTooMany)
	}
	if depth > maxDepth {
		return nil, r.fail(n, errTooDeep)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return r.value(n.Content[0], depth)
	case yaml.AliasNode:
		v, err := r.value(n.Alias, depth+1)
		if err != nil {
			return nil, err
		}
		v.Line = n.Line // what is in it keeps the lines that it has
		return v, nil
	case yaml.MappingNode:
		return r.mapping(n, depth)
	case yaml.SequenceNode:
		v := &Value{Line: n.Line, kind: array}
		for _, element := range n.Content {
			one, err := r.value(element, depth+1)
			if err != nil {
				return nil, err
			}
			v.elements = append(v.elements, one)
		}
		return v, nil
	}
	return r.scalar(n)
}

func (r *yamlReader) mapping(n *yaml.Node, depth int) (*Value, error) {
	v := &Value{Line: n.Line, kind: object}
	var merged []*Value
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		value, err := r.value(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		if key.ShortTag() == "!!merge" {
			merged = append(merged, value)
			continue
		}
		if key.Kind != yaml.ScalarNode {
			return nil, r.fail(key, errors.New("a member's name has to be a word"))
		}
		if err := v.add(Member{key.Value, key.Line, value}); err != nil {
			return nil, r.fail(key, err)
		}
	}
	for _, from := range merged {
		if err := v.merge(from); err != nil {
			return nil, r.fail(n, err)
		}
	}
	return v, nil
}

// merge adds the members of an object, or of several, that v has not itself.
func (v *Value) merge(from *Value) error {
	objects := []*Value{from}
	if from.kind == array {
		objects = from.elements
	}
	for _, o := range objects {
		if o.kind != object {
			return errors.New("<<: want a mapping, or a list of them")
		}
		for _, m := range o.members {
			if v.member(m.Name) == nil {
				v.members = append(v.members, m)
			}
		}
	}
	return nil
}

func (r *yamlReader) scalar(n *yaml.Node) (*Value, error) {
	v := &Value{Line: n.Line, kind: text, text: n.Value}
	switch n.ShortTag() {
	case "!!null":
		return &Value{Line: n.Line}, nil
	case "!!bool", "!!int", "!!float":
		var any any
		if err := n.Decode(&any); err != nil {
			return nil, r.fail(n, err)
		}
		if json.Valid([]byte(n.Value)) { // so a large number keeps its digits
			return &Value{Line: n.Line, kind: literal, text: n.Value}, nil
		}
		written, err := json.Marshal(any)
		if err != nil {
			return nil, r.fail(n, fmt.Errorf("%s is not a number of JSON", n.Value))
		}
		return &Value{Line: n.Line, kind: literal, text: string(written)}, nil
	case "!!str", "!!timestamp":
		return v, nil
	}
	return nil, r.fail(n, fmt.Errorf("the tag %s means nothing here", n.Tag))
}
