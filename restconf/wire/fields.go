package wire

import (
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// maxNesting bounds the parentheses of a fields parameter, far above the depth of
// any schema.
const maxNesting = 32

// fieldsParser reads a fields parameter (RFC 8040 section 4.8.3):
//
//	fields = path *( ";" path )
//	path   = name *( "/" name ) [ "(" fields ")" ]
type fieldsParser struct {
	schema *yang.Schema
	rest   string
}

// ParseFields reads what text selects below node; nil is the datastore.
func ParseFields(schema *yang.Schema, node *yang.Node, text string) (*tree.Selection, error) {
	p := fieldsParser{schema, text}
	sel := &tree.Selection{}
	if err := p.fields(node, sel, 0); err != nil {
		return nil, err
	}
	if p.rest != "" {
		return nil, Invalid("fields has something after its end: " + p.rest)
	}
	return sel, nil
}

func (p *fieldsParser) fields(node *yang.Node, sel *tree.Selection, nesting int) error {
	if nesting > maxNesting {
		return Invalid("fields is nested too deeply")
	}
	for {
		if err := p.Path(node, sel, nesting); err != nil {
			return err
		}
		if !p.take(";") {
			return nil
		}
	}
}

func (p *fieldsParser) Path(node *yang.Node, sel *tree.Selection, nesting int) error {
	for {
		child, err := p.name(node)
		if err != nil {
			return err
		}
		node, sel = child, sel.At(child)
		if p.take("/") {
			continue
		}
		if !p.take("(") {
			sel.Whole = true
			return nil
		}
		if err := p.fields(node, sel, nesting+1); err != nil {
			return err
		}
		if !p.take(")") {
			return Invalid("fields lacks a closing parenthesis")
		}
		return nil
	}
}

func (p *fieldsParser) take(token string) bool {
	rest, ok := strings.CutPrefix(p.rest, token)
	p.rest = rest
	return ok
}

// name reads a node's name, with its module if that differs from the parent's.
func (p *fieldsParser) name(parent *yang.Node) (*yang.Node, error) {
	end := strings.IndexAny(p.rest, "/();")
	if end < 0 {
		end = len(p.rest)
	}
	name := p.rest[:end]
	p.rest = p.rest[end:]
	node, err := RFC8040.child(p.schema, parent, name)
	if err != nil {
		return nil, Invalid("fields: " + err.Error())
	}
	return node, nil
}
