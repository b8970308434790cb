package controller

import (
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// NewDecoder returns a decoder that fails if it would have to hold more than maxHeld bytes.
func NewDecoder(body io.Reader) *jsontext.Decoder {
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
		return 0, ErrTooLong
	}
	n, err := f.body.Read(p)
	f.read += int64(n)
	return n, err
}

// Ended returns an error if more data follows.
func Ended(d *jsontext.Decoder) error {
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("the answer has data after its end")
	}
	return nil
}
