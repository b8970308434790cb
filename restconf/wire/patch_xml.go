package wire

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// patchXML reads a YANG Patch in XML.
type patchXML struct {
	body   []byte
	xml    *xml.Decoder
	scopes []xml.Attr // the declared namespaces, innermost last
	added  int        // bytes of declarations that were added to values
}

// maxAdded bounds the declarations that are added to values.
const maxAdded = 4 << 20

// MaxElementDepth bounds the nesting of elements in a value, as in all other data.
const MaxElementDepth = 10000

func readPatchXML(body []byte) (p Patch, err error) {
	r := &patchXML{body: body, xml: xml.NewDecoder(bytes.NewReader(body))}
	seen := false
	err = r.children(func(start xml.StartElement, _ int64) error {
		if seen || start.Name != (xml.Name{Space: PatchSpace, Local: "yang-patch"}) {
			return unknownInPatch(start.Name.Local)
		}
		seen = true
		p, err = r.patch()
		return err
	})
	if err == nil && !seen {
		err = errors.New("want the element yang-patch of " + PatchSpace)
	}
	return p, err
}

func (r *patchXML) patch() (p Patch, err error) {
	seen := map[string]bool{}
	err = r.children(func(start xml.StartElement, _ int64) (err error) {
		name, err := patchName(start)
		switch {
		case err != nil:
			return err
		case name != "edit" && seen[name]:
			return errors.New("an element is there twice: " + name)
		case name == "edit" && len(p.Edits) == MaxEdits:
			return tooManyEdits()
		}
		seen[name] = true
		switch name {
		case "patch-id":
			p.ID, err = r.text()
		case "comment":
			_, err = r.text()
		case "edit":
			var e PatchEdit
			e, err = r.Edit()
			p.Edits = append(p.Edits, e)
		default:
			err = unknownInPatch(name)
		}
		return err
	})
	return p, err
}

func (r *patchXML) Edit() (e PatchEdit, err error) {
	seen := map[string]bool{}
	err = r.children(func(start xml.StartElement, _ int64) error {
		name, err := patchName(start)
		switch {
		case err != nil:
			return err
		case seen[name]:
			return errors.New("an element is there twice: " + name)
		}
		seen[name] = true
		if name == "value" {
			e.value, err = r.value()
			return err
		}
		text, err := r.text()
		if err != nil {
			return err
		}
		return e.set(name, strings.TrimSpace(text))
	})
	return e, err
}

func patchName(start xml.StartElement) (string, error) {
	if start.Name.Space != PatchSpace {
		return "", unknownInPatch(start.Name.Local)
	}
	return start.Name.Local, nil
}

// next is the next token that is not a comment, and its offset; nil at the end.
func (r *patchXML) next() (xml.Token, int64, error) {
	for {
		begin := r.xml.InputOffset()
		token, err := r.xml.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil, begin, nil
		case err != nil:
			return nil, begin, err
		}
		switch token.(type) {
		case xml.Directive:
			return nil, begin, errors.New("document types and entities are refused")
		case xml.Comment, xml.ProcInst:
			continue
		}
		return token, begin, nil
	}
}

// children calls fn with each element up to the end of the one that is open. fn
// reads to its end.
func (r *patchXML) children(fn func(start xml.StartElement, begin int64) error) error {
	for {
		token, begin, err := r.next()
		if err != nil {
			return err
		}
		switch token := token.(type) {
		case xml.CharData:
			if len(bytes.TrimSpace(token)) > 0 {
				return errors.New("want no text outside of elements")
			}
		case xml.StartElement:
			outer := len(r.scopes)
			for _, attr := range token.Attr {
				if declares(attr) {
					r.scopes = append(r.scopes, attr)
				}
			}
			if err := fn(token, begin); err != nil {
				return err
			}
			r.scopes = r.scopes[:outer]
		default: // the end
			return nil
		}
	}
}

// declares reports whether an attribute declares a namespace.
func declares(attr xml.Attr) bool {
	return attr.Name.Space == "xmlns" || attr.Name.Space == "" && attr.Name.Local == "xmlns"
}

// text reads to the end of a leaf.
func (r *patchXML) text() (string, error) {
	var text strings.Builder
	for {
		token, _, err := r.next()
		if err != nil {
			return "", err
		}
		switch token := token.(type) {
		case xml.CharData:
			text.Write(token)
		case xml.StartElement:
			return "", unknownInPatch(token.Name.Local)
		default:
			return text.String(), nil
		}
	}
}

// value reads to the end of a value.
func (r *patchXML) value() ([]byte, error) {
	elements, err := r.elements()
	return append([]byte{}, slices.Concat(elements...)...), err
}

// elements reads to the end of the open element. The elements in it are as they were sent,
// and each declares the namespaces that are in scope, so that it means the same.
func (r *patchXML) elements() (elements [][]byte, err error) {
	err = r.children(func(start xml.StartElement, begin int64) error {
		if err := r.skip(); err != nil {
			return err
		}
		element := bytes.TrimLeft(r.body[begin:r.xml.InputOffset()], " \t\r\n")
		name := bytes.IndexAny(element, " \t\r\n/>")
		around := r.around(start)
		if r.added += len(around); r.added > maxAdded {
			return errors.New("too many namespaces are declared around too many values: declare them in the values")
		}
		elements = append(elements, slices.Concat(element[:name], around, element[name:]))
		return nil
	})
	return elements, err
}

// skip reads over the rest of an element.
func (r *patchXML) skip() error {
	for depth := 1; depth > 0; {
		token, _, err := r.next()
		if err != nil {
			return err
		}
		switch token.(type) {
		case xml.StartElement:
			if depth++; depth > MaxElementDepth {
				return fmt.Errorf("elements are nested deeper than %d", MaxElementDepth)
			}
		case xml.EndElement:
			depth--
		}
	}
	return nil
}

// around writes the declarations that are in scope and that an element does not make
// itself.
func (r *patchXML) around(start xml.StartElement) []byte {
	var out bytes.Buffer
	made := map[xml.Name]bool{}
	for _, attr := range start.Attr {
		made[attr.Name] = true
	}
	for _, attr := range slices.Backward(r.scopes) {
		if made[attr.Name] {
			continue
		}
		made[attr.Name] = true
		name := attr.Name.Local
		if attr.Name.Space != "" {
			name = attr.Name.Space + ":" + name
		}
		out.WriteString(" " + name + `="`)
		_ = xml.EscapeText(&out, []byte(attr.Value)) // writing to a buffer doesn't fail
		out.WriteByte('"')
	}
	return out.Bytes()
}
