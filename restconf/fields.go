package restconf

import (
	"strings"

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

// parseFields reads what text selects below node; nil is the datastore.
func parseFields(schema *yang.Schema, node *yang.Node, text string) (*selection, error) {
	p := fieldsParser{schema, text}
	sel := &selection{}
	if err := p.fields(node, sel, 0); err != nil {
		return nil, err
	}
	if p.rest != "" {
		return nil, badQuery("fields has something after its end: " + p.rest)
	}
	return sel, nil
}

func (p *fieldsParser) fields(node *yang.Node, sel *selection, nesting int) error {
	if nesting > maxNesting {
		return badQuery("fields is nested too deeply")
	}
	for {
		if err := p.path(node, sel, nesting); err != nil {
			return err
		}
		if !p.take(";") {
			return nil
		}
	}
}

func (p *fieldsParser) path(node *yang.Node, sel *selection, nesting int) error {
	for {
		child, err := p.name(node)
		if err != nil {
			return err
		}
		node, sel = child, sel.at(child)
		if p.take("/") {
			continue
		}
		if !p.take("(") {
			sel.whole = true
			return nil
		}
		if err := p.fields(node, sel, nesting+1); err != nil {
			return err
		}
		if !p.take(")") {
			return badQuery("fields lacks a closing parenthesis")
		}
		return nil
	}
}

func (p *fieldsParser) take(token string) bool {
	rest, ok := strings.CutPrefix(p.rest, token)
	p.rest = rest
	return ok
}

// name reads a node's name, with its module where that differs from the parent's.
func (p *fieldsParser) name(parent *yang.Node) (*yang.Node, error) {
	end := strings.IndexAny(p.rest, "/();")
	if end < 0 {
		end = len(p.rest)
	}
	name := p.rest[:end]
	p.rest = p.rest[end:]
	node, err := rfc8040.child(p.schema, parent, name)
	if err != nil {
		return nil, badQuery("fields: " + err.Error())
	}
	return node, nil
}
