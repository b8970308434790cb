package controller

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// newDecoder returns a decoder that fails if it would have to hold more than maxHeld bytes.
func newDecoder(body io.Reader) *jsontext.Decoder {
	f := &heldReader{body: body}
	f.decoder = jsontext.NewDecoder(f, jsontext.AllowDuplicateNames(true))
	return f.decoder
}

// maxHeld bounds the part of an answer that a decoder holds, in bytes: the largest value
// that it reads as a whole.
const maxHeld = 4 << 20

// heldReader reads a body for a decoder, unless the decoder holds more than maxHeld.
type heldReader struct {
	body    io.Reader
	decoder *jsontext.Decoder
	read    int64
}

func (f *heldReader) Read(p []byte) (int, error) {
	if f.read-f.decoder.InputOffset() > maxHeld {
		return 0, errTooLong
	}
	n, err := f.body.Read(p)
	f.read += int64(n)
	return n, err
}

// ended returns an error if more data follows.
func ended(d *jsontext.Decoder) error {
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("the answer has data after its end")
	}
	return nil
}

// decode reads a container with its list, one entry at a time, so that entries that are
// not kept take no memory.
func decode(body io.Reader, l StateList, element func(*jsontext.Decoder) error) error {
	d := newDecoder(body)
	found := false
	err := members(d, func(name string) error {
		if !named(name, l.Module, l.Container) {
			return d.SkipValue()
		}
		found = true
		return members(d, func(name string) error {
			if !named(name, l.Module, l.Name) {
				return d.SkipValue()
			}
			return elements(d, element)
		})
	})
	return finish(d, err, found, l.Module+":"+l.Container)
}

// decodeSingle reads the answer to a request for an entry.
func decodeSingle(body io.Reader, l StateList, element func(*jsontext.Decoder) error) error {
	d := newDecoder(body)
	found := false
	err := members(d, func(name string) error {
		if !named(name, l.Module, l.Name) {
			return d.SkipValue()
		}
		found = true
		return elements(d, element)
	})
	return finish(d, err, found, l.Module+":"+l.Name)
}

// finish checks that the answer has ended, and that it contained the requested data.
func finish(d *jsontext.Decoder, err error, found bool, name string) error {
	if err != nil {
		return err
	}
	if err := ended(d); err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("the answer does not contain %s", name)
	}
	return nil
}

// named reports whether a member has this name, with or without the module as prefix.
func named(member, module, name string) bool {
	rest, prefixed := strings.CutPrefix(member, module+":")
	return rest == name && (prefixed || !strings.Contains(member, ":"))
}

// members reads an object: it calls each with the name of each member, and each reads the
// value.
func members(d *jsontext.Decoder, each func(name string) error) error {
	if err := open(d, '{'); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := each(name.String()); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// elements reads an array: it calls element for each value, which reads it.
func elements(d *jsontext.Decoder, element func(*jsontext.Decoder) error) error {
	if err := open(d, '['); err != nil {
		return err
	}
	for d.PeekKind() != ']' {
		if err := element(d); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

func open(d *jsontext.Decoder, kind jsontext.Kind) error {
	token, err := d.ReadToken()
	if err == nil && token.Kind() != kind {
		err = fmt.Errorf("the answer has %s where %s is expected", token.Kind(), kind)
	}
	return err
}
