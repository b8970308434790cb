package ovsdb

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// object reads an object: it calls member with each name, and member reads the
// value. The name is valid until member reads.
func object(in *jsontext.Decoder, member func(name []byte) error) error {
	if err := open(in, '{'); err != nil {
		return err
	}
	for in.PeekKind() == '"' {
		name, err := in.ReadValue()
		if err != nil {
			return err
		}
		if err := member(name[1 : len(name)-1]); err != nil {
			return err
		}
	}
	_, err := in.ReadToken()
	return err
}

// array reads an array: element reads each value.
func array(in *jsontext.Decoder, element func() error) error {
	if err := open(in, '['); err != nil {
		return err
	}
	for more(in) {
		if err := element(); err != nil {
			return err
		}
	}
	_, err := in.ReadToken()
	return err
}

func open(in *jsontext.Decoder, kind jsontext.Kind) error {
	token, err := in.ReadToken()
	if err == nil && token.Kind() != kind {
		err = fmt.Errorf("%s where %s should be", token.Kind(), kind)
	}
	return err
}

// more reports whether an array or object has another value, or reading will fail.
func more(in *jsontext.Decoder) bool {
	switch in.PeekKind() {
	case ']', '}', 0:
		return false
	}
	return true
}

func value(in *jsontext.Decoder) (jsontext.Value, error) {
	v, err := in.ReadValue()
	return v.Clone(), err
}

// text reads a string; it returns the JSON of any other value.
func text(in *jsontext.Decoder) (string, error) {
	v, err := in.ReadValue()
	if err != nil || v.Kind() != '"' {
		return string(v), err
	}
	plain, _ := jsontext.AppendUnquote(nil, v) // replaces invalid UTF-8
	return string(plain), nil
}

func integer(in *jsontext.Decoder) (int64, error) {
	v, err := in.ReadValue()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(v), 10, 64)
}
