module github.com/sallyport-go/sallyport/middleware/contracttest

go 1.26
