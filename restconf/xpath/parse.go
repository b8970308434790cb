package xpath

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// The bounds of a condition.
const (
	maxLength = 4096 // octets
	maxNested = 32   // parentheses and predicates
)

// Parse reads a condition. Its errors are for people.
func Parse(schema *yang.Schema, text string) (*Condition, error) {
	if len(text) > maxLength {
		return nil, fmt.Errorf("it is longer than %d octets", maxLength)
	}
	p := &parser{schema: schema}
	for rest := text; ; {
		rest = strings.TrimLeft(rest, " \t\r\n")
		if rest == "" {
			break
		}
		found := token.FindString(rest)
		if found == "" {
			return nil, refuse("it can't be read from " + quoted(rest))
		}
		p.tokens, rest = append(p.tokens, found), rest[len(found):]
	}
	root, err := p.or()
	if err == nil && len(p.tokens) > 0 {
		err = refuse("there is " + quoted(p.tokens[0]) + " after its end")
	}
	if err != nil {
		return nil, err
	}
	return &Condition{root}, nil
}

// token is a token at the begin of a text.
var token = regexp.MustCompile(
	`^(?:[A-Za-z_][\w.-]*(?::(?:\*|[A-Za-z_][\w.-]*))?|"[^"]*"|'[^']*'|-?(?:\d+(?:\.\d*)?|\.\d+)|//|::|\.\.|[!<>]=|[/()\[\]|*.,=<>@$+-])`)

func refuse(why string) error {
	return errors.New(why + "; want paths down with conditions in [], compared with values, and or, and, not, contains, starts-with, count")
}

func quoted(text string) string {
	if len(text) > 40 {
		text = strings.ToValidUTF8(text[:40], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}

// parser reads tokens by recursive descent.
type parser struct {
	schema *yang.Schema
	tokens []string
	nested int
	inside int // predicates
}

// next is the next token, empty at the end.
func (p *parser) next() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

// take reads the next token if it is among tokens.
func (p *parser) take(tokens ...string) (string, bool) {
	next := p.next()
	if next == "" || !slices.Contains(tokens, next) {
		return "", false
	}
	p.tokens = p.tokens[1:]
	return next, true
}

func (p *parser) expect(token string) error {
	if _, ok := p.take(token); !ok {
		return refuse("want " + quoted(token) + " and there is " + quoted(p.next()))
	}
	return nil
}

func (p *parser) or() (expression, error)  { return p.logic("or", p.and) }
func (p *parser) and() (expression, error) { return p.logic("and", p.comparison) }

func (p *parser) logic(word string, operand func() (expression, error)) (expression, error) {
	left, err := operand()
	for err == nil {
		if _, more := p.take(word); !more {
			break
		}
		var right expression
		right, err = operand()
		left = logic{word == "or", left, right}
	}
	return left, err
}

func (p *parser) comparison() (expression, error) {
	left, err := p.union()
	if err != nil {
		return nil, err
	}
	operator, ok := p.take("=", "!=", "<", "<=", ">", ">=")
	if !ok {
		return left, nil
	}
	right, err := p.union()
	if err == nil && left.kind() == isNodes && right.kind() == isNodes {
		err = refuse("it compares two paths")
	}
	return comparison{operator, left, right}, err
}

func (p *parser) union() (expression, error) {
	first, err := p.operand()
	if err != nil || p.next() != "|" {
		return first, err
	}
	all := union{first}
	for {
		if all[len(all)-1].kind() != isNodes {
			return nil, refuse("both sides of | must be paths")
		}
		if _, more := p.take("|"); !more {
			return all, nil
		}
		one, err := p.operand()
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
}

// operand reads a value, a function's call, a path, or what is in parentheses.
func (p *parser) operand() (expression, error) {
	token := p.next()
	switch {
	case token == "":
		return nil, refuse("it ends too early")
	case token == "(":
		return p.parentheses()
	case token[0] == '"' || token[0] == '\'':
		p.tokens = p.tokens[1:]
		return literal{value{kind: isText, text: token[1 : len(token)-1]}}, nil
	case token[0] >= '0' && token[0] <= '9', len(token) > 1 && (token[0] == '-' || token[0] == '.' && token != ".."):
		p.tokens = p.tokens[1:]
		return literal{value{kind: isNumber, number: parseNumber(token)}}, nil
	case len(p.tokens) > 1 && p.tokens[1] == "(":
		return p.call()
	}
	return p.path()
}

func (p *parser) parentheses() (inner expression, err error) {
	err = p.within("(", ")", func() error {
		inner, err = p.or()
		return err
	})
	return inner, err
}

// within reads what stands between two tokens.
func (p *parser) within(begin, end string, read func() error) error {
	if p.nested++; p.nested > maxNested {
		return refuse("it is nested too deeply")
	}
	defer func() { p.nested-- }()
	if err := p.expect(begin); err != nil {
		return err
	}
	if err := read(); err != nil {
		return err
	}
	return p.expect(end)
}

func (p *parser) call() (expression, error) {
	c := call{name: p.next()}
	f, known := functions[c.name]
	if !known {
		return nil, refuse("there is no function " + quoted(c.name))
	}
	p.tokens = p.tokens[1:]
	err := p.within("(", ")", func() error {
		for i := range f.arguments {
			if i > 0 {
				if err := p.expect(","); err != nil {
					return err
				}
			}
			argument, err := p.or()
			if err != nil {
				return err
			}
			c.arguments = append(c.arguments, argument)
		}
		return nil
	})
	if err == nil && c.name == "count" && c.arguments[0].kind() != isNodes {
		err = refuse("count is of a path")
	}
	return c, err
}

func (p *parser) path() (expression, error) {
	var out path
	if _, out.absolute = p.take("/"); out.absolute {
		if p.inside > 0 {
			return nil, refuse("a path in a condition begins at the root")
		}
		if !p.atStep() {
			return out, nil
		}
	}
	for {
		s, err := p.step()
		if err != nil {
			return nil, err
		}
		out.steps = append(out.steps, s)
		if _, more := p.take("/"); !more {
			return out, nil
		}
	}
}

// atStep reports whether a step follows.
func (p *parser) atStep() bool {
	token := p.next()
	return token == "*" || token == "." || token != "" && (token[0] == '_' || token[0]|0x20 >= 'a' && token[0]|0x20 <= 'z')
}

func (p *parser) step() (pathStep, error) {
	var s pathStep
	if !p.atStep() {
		return s, refuse("want a name and there is " + quoted(p.next()))
	}
	token := p.next()
	p.tokens = p.tokens[1:]
	switch module, name, qualified := strings.Cut(token, ":"); {
	case token == ".":
		s.stay = true
	case token == "*":
	case !qualified:
		s.name = token
	case p.schema.Module(module) == nil:
		return s, refuse("there is no module " + quoted(module))
	default:
		s.module, s.name = module, strings.TrimPrefix(name, "*")
	}
	for p.next() == "[" {
		condition, err := p.predicate()
		if err != nil {
			return s, err
		}
		s.predicates = append(s.predicates, condition)
	}
	return s, nil
}

func (p *parser) predicate() (condition expression, err error) {
	p.inside++
	defer func() { p.inside-- }()
	err = p.within("[", "]", func() error {
		condition, err = p.or()
		return err
	})
	if err == nil && condition.kind() == isNumber {
		err = refuse("there is a position in []")
	}
	return condition, err
}
