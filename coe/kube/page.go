package kube

import (
	"context"
	"errors"
	"io"
	"net/http"

	"golang.org/x/net/http2"
)

// maxPage is how many bytes a page of a list may have. The API server bounds a page
// by the number of objects only, and a tenant's object may have more than a megabyte.
// Decoded, an EndpointSlice takes twelve times as much.
const maxPage = 4 << 20

// errLargePage is why a page was not read: it has more than maxPage bytes.
var errLargePage = errors.New("the page of the list is too large")

// isLargePage reports whether a list failed with errLargePage.
func isLargePage(err error) bool {
	var broken http2.StreamError
	return errors.As(err, &broken) && errors.Is(broken.Cause, errLargePage)
}

type pageKey struct{}

// bounded has the body of the response to a request with this context end with
// errLargePage where it is too large for a page.
func bounded(ctx context.Context) context.Context { return context.WithValue(ctx, pageKey{}, true) }

// boundBody bounds the body of a response as the context of its request says.
func boundBody(ctx context.Context, response *http.Response) {
	if ctx.Value(pageKey{}) != nil {
		response.Body = &boundedBody{response.Body, maxPage}
	}
}

type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return n, http2.StreamError{Code: http2.ErrCodeCancel, Cause: errLargePage} // client-go logs any other as an error
	}
	return n, err
}
